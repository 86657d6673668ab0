#include "tenure/pd/decode_scheduler.h"

#include <gtest/gtest.h>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

constexpr MonotonicTime kStart = MonotonicTime::FromNanoseconds(1'000'000'000);
const RemotePrefill kRemote{"xfer", "engine", "http://p:8998"};

class DecodeSchedulerTest : public testing::Test {
 protected:
  static DecodeScheduler Make(bool keeps_last_token = false) {
    return DecodeScheduler(TransferGroups({TransferGroups::Group{}}), {keeps_last_token, absl::Seconds(10)});
  }
  DecodeScheduler scheduler_ = Make();
};

TEST_F(DecodeSchedulerTest, APromptIsOfferedPulledAndSettledOnce) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(32), kStart), Tokens(268));
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(64), kStart), Tokens(236));  // Asked until it has blocks.
  scheduler_.Allocated("r", {{4, 5}}, Tokens(236));
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(0), kStart), Tokens(0));
  scheduler_.Allocated("r", {{4, 5}}, Tokens(0));  // After the load.

  const StepOrders orders = scheduler_.TakeOrders(kStart + absl::Seconds(3));
  EXPECT_EQ(orders.pulls,
            (std::vector<PullOrder>{{"r", "xfer", "engine", "http://p:8998", {{4, 5}}, absl::Seconds(7)}}));
  EXPECT_FALSE(scheduler_.has_orders());
  EXPECT_TRUE(scheduler_.Settled("r"));
  EXPECT_FALSE(scheduler_.Settled("r"));
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(0), kStart), Tokens(0));  // A failed pull is not tried again.
  EXPECT_EQ(scheduler_.num_pending(), 0);
}

TEST_F(DecodeSchedulerTest, AModelWithStatesComputesTheLastTokenItself) {
  DecodeScheduler scheduler = Make(true);
  ASSERT_TRUE(scheduler.Arrived("r", kRemote, kStart).ok());
  EXPECT_EQ(scheduler.Offered("r", Tokens(300), Tokens(0), kStart), Tokens(299));
  EXPECT_EQ(scheduler.Offered("r", Tokens(1), Tokens(0), kStart), Tokens(1));
  EXPECT_EQ(scheduler.Offered("r", Tokens(33), Tokens(32), kStart), Tokens(0));
}

TEST_F(DecodeSchedulerTest, AFullLocalHitOnlyReleases) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(300), kStart), Tokens(0));
  scheduler_.Allocated("r", {{4}}, Tokens(0));
  const StepOrders orders = scheduler_.TakeOrders(kStart);
  ASSERT_EQ(orders.pulls.size(), 1);
  EXPECT_TRUE(orders.pulls[0].blocks.empty());
  EXPECT_FALSE(scheduler_.Settled("r"));
}

TEST_F(DecodeSchedulerTest, AnAbortBeforeTheScheduleReleasesEdge18) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.Finished("r");
  EXPECT_EQ(scheduler_.TakeOrders(kStart).pulls.size(), 1);
  EXPECT_EQ(scheduler_.num_pending(), 0);
}

TEST_F(DecodeSchedulerTest, AnAbortDuringAPullWaitsForItsEndEdge18) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.Allocated("r", {{4}}, Tokens(300));
  scheduler_.TakeOrders(kStart);
  scheduler_.Finished("r");
  EXPECT_FALSE(scheduler_.has_orders());
  EXPECT_TRUE(absl::IsInvalidArgument(scheduler_.Arrived("r", {"other", "engine", "b"}, kStart)));
  EXPECT_TRUE(scheduler_.Settled("r"));
}

TEST_F(DecodeSchedulerTest, MissingFieldsAreNamedAndNothingIsPulledEdge27) {
  const absl::Status status = scheduler_.Arrived("r", {"xfer", "", ""}, kStart);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(Message(status).find("no remote_engine_id, remote_bootstrap_addr;"), std::string_view::npos) << status;
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(0), kStart), Tokens(0));
  scheduler_.Allocated("r", {{4}}, Tokens(0));
  scheduler_.Finished("r");
  EXPECT_FALSE(scheduler_.has_orders());
}

TEST_F(DecodeSchedulerTest, ATransferIdBelongsToItsFirstRequestEdge12) {
  ASSERT_TRUE(scheduler_.Arrived("0_r", kRemote, kStart).ok());
  const absl::Status refused = scheduler_.Arrived("1_r", kRemote, kStart);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(scheduler_.Offered("1_r", Tokens(300), Tokens(0), kStart), Tokens(0));
  scheduler_.Finished("1_r");
  EXPECT_FALSE(scheduler_.has_orders());
  EXPECT_EQ(scheduler_.Offered("0_r", Tokens(300), Tokens(0), kStart), Tokens(300));
}

TEST_F(DecodeSchedulerTest, PastItsDeadlineARequestIsComputedHereAndItsTransferReleased) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  const MonotonicTime late = kStart + absl::Seconds(10);
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(0), late), Tokens(0));
  scheduler_.Allocated("r", {{4}}, Tokens(0));
  const StepOrders orders = scheduler_.TakeOrders(late);
  ASSERT_EQ(orders.pulls.size(), 1);
  EXPECT_EQ(orders.pulls[0].remaining, DecodeScheduler::kReleaseTime);
}

TEST_F(DecodeSchedulerTest, APullThatComesLateHasNoTimeLeft) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.Allocated("r", {{4}}, Tokens(300));
  EXPECT_EQ(scheduler_.TakeOrders(kStart + absl::Seconds(11)).pulls[0].remaining, absl::ZeroDuration());
}

TEST_F(DecodeSchedulerTest, IsRenewedFromArrivalUntilSettledEdge32) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  DecodeScheduler::Renewals renewals = scheduler_.TakeRenewals(kStart + absl::Seconds(1));
  ASSERT_EQ(renewals.tracked.size(), 1);
  EXPECT_EQ(renewals.tracked[0].remote.transfer_id, "xfer");
  EXPECT_EQ(renewals.tracked[0].remaining, absl::Seconds(9));
  scheduler_.Allocated("r", {{4}}, Tokens(300));
  scheduler_.TakeOrders(kStart);
  renewals = scheduler_.TakeRenewals(kStart);
  EXPECT_TRUE(renewals.stopped.empty() && renewals.tracked.empty());
  scheduler_.Settled("r");
  EXPECT_EQ(scheduler_.TakeRenewals(kStart).stopped, std::vector<std::string>{"r"});
}

TEST_F(DecodeSchedulerTest, AReleaseEndsTheRenewalEdge33) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.TakeRenewals(kStart);
  scheduler_.Allocated("r", {}, Tokens(0));
  EXPECT_EQ(scheduler_.TakeRenewals(kStart).stopped, std::vector<std::string>{"r"});
}

TEST_F(DecodeSchedulerTest, ATransferThatPHoldsNoMoreIsComputedHereEdge34) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.TakeRenewals(kStart);
  EXPECT_EQ(scheduler_.Gone("another engine", "xfer"), "");
  EXPECT_EQ(scheduler_.Gone("engine", "another"), "");
  EXPECT_EQ(scheduler_.Gone("engine", "xfer"), "r");
  EXPECT_EQ(scheduler_.Offered("r", Tokens(300), Tokens(0), kStart), Tokens(0));
  scheduler_.Allocated("r", {{4}}, Tokens(0));
  scheduler_.Finished("r");
  EXPECT_FALSE(scheduler_.has_orders());
  EXPECT_EQ(scheduler_.TakeRenewals(kStart).stopped, std::vector<std::string>{"r"});
}

TEST_F(DecodeSchedulerTest, APullUnderWayEndsAsItsWorkersSay) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.Allocated("r", {{4}}, Tokens(300));
  EXPECT_EQ(scheduler_.Gone("engine", "xfer"), "");  // Being served is a way to go, too.
  EXPECT_TRUE(scheduler_.Settled("r"));
}

TEST_F(DecodeSchedulerTest, ARenewalThatWasNeverToldIsNotStopped) {
  ASSERT_TRUE(scheduler_.Arrived("r", kRemote, kStart).ok());
  scheduler_.Finished("r");
  const DecodeScheduler::Renewals renewals = scheduler_.TakeRenewals(kStart);
  EXPECT_TRUE(renewals.tracked.empty());
  EXPECT_TRUE(renewals.stopped.empty());
}

}  // namespace
}  // namespace tenure::pd
