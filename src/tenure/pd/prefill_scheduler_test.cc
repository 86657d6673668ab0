#include "tenure/pd/prefill_scheduler.h"

#include <gtest/gtest.h>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using End = PrefillScheduler::End;

PrefillScheduler OneGroup() { return PrefillScheduler(TransferGroups({TransferGroups::Group{}})); }

TEST(PrefillSchedulerTest, ARequestIsAnnouncedOnceAndFinishedWithItsBlocks) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("r", "xfer").ok());
  ASSERT_TRUE(scheduler.Scheduled("r", "xfer").ok());  // Preempted and scheduled again.
  EXPECT_TRUE(scheduler.has_orders());
  const StepOrders first = scheduler.TakeOrders();
  EXPECT_EQ(first.announced, (std::vector<TransferOrder>{{"r", "xfer"}}));
  EXPECT_FALSE(scheduler.has_orders());

  EXPECT_TRUE(scheduler.Finished("r", "xfer", End::kWhole, {{1, 2, 3}}));
  EXPECT_EQ(scheduler.num_kept(), 1);
  const StepOrders second = scheduler.TakeOrders();
  EXPECT_TRUE(second.announced.empty());
  EXPECT_EQ(second.finished, (std::vector<FinishOrder>{{"r", "xfer", {{1, 2, 3}}}}));
  EXPECT_TRUE(scheduler.Sent("r"));
  EXPECT_EQ(scheduler.num_kept(), 0);
}

TEST(PrefillSchedulerTest, AnEndWithoutBlocksIsReadyAsWellEdge13) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("r", "xfer").ok());
  EXPECT_TRUE(scheduler.Finished("r", "xfer", End::kWhole, {}));
  EXPECT_EQ(scheduler.TakeOrders().finished, (std::vector<FinishOrder>{{"r", "xfer", {}}}));
  EXPECT_TRUE(scheduler.Sent("r"));
}

TEST(PrefillSchedulerTest, AnAbortFreesAtOnceAndTakesTheAnnouncementBack) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("r", "xfer").ok());
  EXPECT_FALSE(scheduler.Finished("r", "xfer", End::kOther, {{1}}));
  const StepOrders orders = scheduler.TakeOrders();
  EXPECT_TRUE(orders.announced.empty());
  EXPECT_EQ(orders.aborted, (std::vector<TransferOrder>{{"r", "xfer"}}));
  EXPECT_FALSE(scheduler.Sent("r"));
}

TEST(PrefillSchedulerTest, AnAbortBeforeTheFirstScheduleTellsDEdge6) {
  PrefillScheduler scheduler = OneGroup();
  EXPECT_FALSE(scheduler.Finished("r", "xfer", End::kOther, {}));
  EXPECT_EQ(scheduler.TakeOrders().aborted, (std::vector<TransferOrder>{{"r", "xfer"}}));
}

TEST(PrefillSchedulerTest, ATransferIdBelongsToItsFirstRequestEdge12) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("0_r", "xfer").ok());
  const absl::Status refused = scheduler.Scheduled("1_r", "xfer");
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(Message(refused).find("belongs to request 0_r"), std::string_view::npos) << refused;
  EXPECT_TRUE(scheduler.Scheduled("1_r", "xfer").ok());  // Told once.

  EXPECT_FALSE(scheduler.Finished("1_r", "xfer", End::kWhole, {{7}}));
  EXPECT_TRUE(scheduler.Finished("0_r", "xfer", End::kWhole, {{1}}));
  const StepOrders orders = scheduler.TakeOrders();
  EXPECT_TRUE(orders.aborted.empty());
  EXPECT_EQ(orders.finished, (std::vector<FinishOrder>{{"0_r", "xfer", {{1}}}}));
  EXPECT_FALSE(scheduler.Sent("1_r"));
}

TEST(PrefillSchedulerTest, AnUnscheduledChildDoesNotEndItsSiblingsTransfer) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("0_r", "xfer").ok());
  EXPECT_FALSE(scheduler.Finished("1_r", "xfer", End::kOther, {}));
  EXPECT_TRUE(scheduler.TakeOrders().aborted.empty());
}

TEST(PrefillSchedulerTest, ATransferIdMayBeginAnewWhenItsRequestHasEnded) {
  PrefillScheduler scheduler = OneGroup();
  ASSERT_TRUE(scheduler.Scheduled("a", "xfer").ok());
  scheduler.TakeOrders();
  EXPECT_FALSE(scheduler.Finished("a", "xfer", End::kOther, {}));
  ASSERT_TRUE(scheduler.Scheduled("b", "xfer").ok());
  const StepOrders orders = scheduler.TakeOrders();
  EXPECT_EQ(orders.aborted, (std::vector<TransferOrder>{{"a", "xfer"}}));
  EXPECT_EQ(orders.announced, (std::vector<TransferOrder>{{"b", "xfer"}}));
}

TEST(PrefillSchedulerTest, ARequestWithoutTransferIdRunsAlone) {
  PrefillScheduler scheduler = OneGroup();
  EXPECT_TRUE(absl::IsInvalidArgument(scheduler.Scheduled("r", "")));
  EXPECT_FALSE(scheduler.has_orders());
  EXPECT_FALSE(scheduler.Finished("r", "", End::kWhole, {{1}}));
  EXPECT_FALSE(scheduler.has_orders());
}

TEST(PrefillSchedulerTest, ATransferIdThatNoMessageCarriesIsRefused) {
  PrefillScheduler scheduler = OneGroup();
  EXPECT_TRUE(absl::IsInvalidArgument(scheduler.Scheduled("r", std::string(5000, 'x'))));
  EXPECT_FALSE(scheduler.Finished("r", std::string(5000, 'x'), End::kOther, {}));
  EXPECT_FALSE(scheduler.Finished("s", "\xff", End::kOther, {}));
  EXPECT_FALSE(scheduler.has_orders());
}

TEST(PrefillSchedulerTest, WindowsKeepTheBlocksThatTheyTouch) {
  // 64 tokens of blocks of 32 touch 3, 65 touch 4, and no window keeps all.
  PrefillScheduler scheduler(TransferGroups({{64, 32}, {65, 32}, {0, 32}}));
  ASSERT_TRUE(scheduler.Scheduled("r", "xfer").ok());
  scheduler.Finished("r", "xfer", End::kWhole, {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}});
  EXPECT_EQ(scheduler.TakeOrders().finished[0].blocks,
            (TransferGroups::Blocks{{3, 4, 5}, {2, 3, 4, 5}, {1, 2, 3, 4, 5}}));
}

}  // namespace
}  // namespace tenure::pd
