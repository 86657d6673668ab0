#include "tenure/pd/renewal_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/renewal.h"

namespace tenure::pd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RenewalScheduleTest : public ::testing::Test {
 protected:
  static RenewalSchedule Make(RenewalScheduleOptions options, MonotonicTime now) {
    auto schedule = RenewalSchedule::Create(options, now);
    TENURE_CHECK(schedule.ok());
    return *std::move(schedule);
  }
  MonotonicTime now() const { return clock_.Now(); }
  void Track(const std::string& request, const std::string& transfer, const std::string& engine = "e",
             MonotonicTime deadline = MonotonicTime::Max()) {
    ASSERT_TRUE(schedule_.Track(request, transfer, engine, deadline).ok());
  }
  // "engine: id id", one text a batch.
  std::vector<std::string> Batches() {
    schedule_.Stepped(now());
    std::vector<std::string> texts;
    for (const RenewalSchedule::Batch& batch : schedule_.TakeRound(now()).batches) {
      texts.push_back(batch.engine_id + ":");
      for (const std::string& id : batch.transfer_ids) texts.back() += " " + id;
    }
    return texts;
  }

  ManualClock clock_{MonotonicTime::FromNanoseconds(5'000'000'000)};
  RenewalSchedule schedule_ = Make({.lease = absl::Seconds(30)}, now());
};

TEST_F(RenewalScheduleTest, FirstRoundIsAtOnceAndThenEverySixthOfTheLease) {
  Track("r", "x");
  EXPECT_THAT(Batches(), ElementsAre("e: x"));
  EXPECT_EQ(schedule_.NextRound(), now() + absl::Seconds(5));
  clock_.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_THAT(Batches(), IsEmpty());
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Batches(), ElementsAre("e: x"));
}

TEST_F(RenewalScheduleTest, ShortLeaseHasAShortPeriod) {
  schedule_ = Make({.lease = absl::Seconds(3)}, now());
  Track("r", "x");
  EXPECT_THAT(Batches(), ElementsAre("e: x"));
  EXPECT_EQ(schedule_.NextRound(), now() + absl::Milliseconds(500));
}

TEST_F(RenewalScheduleTest, TransfersAreGroupedByEngineAndNamedOnce) {
  Track("r3", "x3", "e2");
  Track("r1", "x1", "e1");
  Track("r2", "x1", "e1");
  Track("r0", "x0", "e1");
  EXPECT_THAT(Batches(), ElementsAre("e1: x0 x1", "e2: x3"));
}

TEST_F(RenewalScheduleTest, MessageHoldsAtMost128Ids) {
  for (int i = 0; i < 300; ++i) Track("r" + std::to_string(i), "x" + std::to_string(i));
  schedule_.Stepped(now());
  std::vector<size_t> sizes;
  std::set<std::string> ids;
  for (const RenewalSchedule::Batch& batch : schedule_.TakeRound(now()).batches) {
    sizes.push_back(batch.transfer_ids.size());
    ids.insert(batch.transfer_ids.begin(), batch.transfer_ids.end());
    EXPECT_TRUE(EncodeRenewal({batch.transfer_ids, 30.0}).ok());
  }
  EXPECT_THAT(sizes, ElementsAre(128, 128, 44));
  EXPECT_EQ(ids.size(), 300u);
}

TEST_F(RenewalScheduleTest, EdgeCase32RenewedUntilItIsSettledAndNoLonger) {
  Track("r", "x");
  Track("other", "x");
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(Batches(), ElementsAre("e: x"));
    clock_.Advance(absl::Seconds(5));
  }
  schedule_.Stop("r");
  EXPECT_THAT(Batches(), ElementsAre("e: x")) << "another request wants it";
  clock_.Advance(absl::Seconds(5));
  schedule_.Stop("other");
  schedule_.Stop("never seen");
  EXPECT_THAT(Batches(), IsEmpty());
  EXPECT_EQ(schedule_.num_tracked(), 0u);
}

TEST_F(RenewalScheduleTest, RequestPastItsDeadlineIsGivenUp) {
  Track("r", "x", "e", now() + absl::Seconds(10));
  EXPECT_THAT(Batches(), ElementsAre("e: x"));
  clock_.Advance(absl::Seconds(10));
  schedule_.Stepped(now());
  const RenewalSchedule::Round round = schedule_.TakeRound(now());
  EXPECT_THAT(round.given_up, ElementsAre("r"));
  EXPECT_THAT(round.batches, IsEmpty());
  EXPECT_EQ(schedule_.num_tracked(), 0u);
}

TEST_F(RenewalScheduleTest, EdgeCase31LongStepIsRenewedAndAHungEngineIsNot) {
  Track("r", "x");
  for (int seconds = 0; seconds < 300; seconds += 5) {
    EXPECT_EQ(schedule_.TakeRound(now()).batches.size(), 1u) << seconds;
    clock_.Advance(absl::Seconds(5));
  }
  const RenewalSchedule::Round silent = schedule_.TakeRound(now());
  EXPECT_THAT(silent.batches, IsEmpty());
  EXPECT_TRUE(silent.fell_silent);
  clock_.Advance(absl::Seconds(5));
  EXPECT_FALSE(schedule_.TakeRound(now()).fell_silent) << "one log line";
  clock_.Advance(absl::Seconds(5));
  EXPECT_THAT(Batches(), ElementsAre("e: x")) << "it steps again";
}

TEST_F(RenewalScheduleTest, IdleSchedulerKeepsRenewing) {
  Track("r", "x");
  schedule_.WentIdle();
  clock_.Advance(absl::Seconds(10'000));
  EXPECT_EQ(schedule_.TakeRound(now()).batches.size(), 1u);
  schedule_.Stepped(now());
  clock_.Advance(absl::Seconds(300));
  EXPECT_TRUE(schedule_.TakeRound(now()).fell_silent) << "a step ends the idleness";
}

TEST_F(RenewalScheduleTest, SchedulerWithoutRequestsIsNotSaidToHang) {
  clock_.Advance(absl::Seconds(10'000));
  EXPECT_FALSE(schedule_.TakeRound(now()).fell_silent);
  Track("r", "x");
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(schedule_.TakeRound(now()).fell_silent) << "it has one, and does not step";
}

TEST_F(RenewalScheduleTest, OptionsAndIdsThatCannotWorkAreRefused) {
  for (const absl::Duration bad : {absl::ZeroDuration(), -absl::Seconds(1), absl::InfiniteDuration()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(RenewalSchedule::Create({.lease = bad}, now()).status()));
    const RenewalScheduleOptions options = {.lease = absl::Seconds(1), .renew_without_step = bad};
    EXPECT_TRUE(absl::IsInvalidArgument(RenewalSchedule::Create(options, now()).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(schedule_.Track("r", std::string(4097, 'x'), "e", now())));
  schedule_ = Make({.lease = absl::Seconds(30), .requests_max = 1}, now());
  Track("r", "x");
  Track("r", "y");
  EXPECT_TRUE(absl::IsResourceExhausted(schedule_.Track("r2", "x", "e", now())));
  EXPECT_THAT(Batches(), ElementsAre("e: y"));
}

// Both ends together: a transfer outlives any three lost rounds in a row, and is freed within a lease of the last
// round.
TEST_F(RenewalScheduleTest, ThreeLostRoundsCostNothingAndADeadDecoderHoldsNothing) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    ManualClock clock;
    auto leases = HandoffLeases::Create({.lease = absl::Seconds(30)});
    schedule_ = Make({.lease = absl::Seconds(30)}, clock.Now());
    Track("r", "x");
    ASSERT_TRUE(leases->Announce("x", "p").ok());
    ASSERT_TRUE(leases->Finish("x", "p", {{1}}, clock.Now()).ok());
    MonotonicTime last_renewal = clock.Now();
    int lost = 0;
    for (int round = 0; round < 60; ++round) {
      schedule_.Stepped(clock.Now());
      const std::vector<RenewalSchedule::Batch> batches = schedule_.TakeRound(clock.Now()).batches;
      ASSERT_EQ(batches.size(), 1u);
      if (lost < 3 && random.Chance(0.7)) {
        ++lost;
      } else {
        ASSERT_THAT(*leases->Renew(batches[0].transfer_ids, clock.Now()), IsEmpty());
        last_renewal = clock.Now();
        lost = 0;
      }
      clock.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
      ASSERT_THAT(leases->Scan(clock.Now()).expired_requests, IsEmpty());
      clock.Advance(absl::Nanoseconds(1));
    }
    clock.AdvanceTo(last_renewal + absl::Seconds(30));
    EXPECT_THAT(leases->Scan(clock.Now()).expired_requests, ElementsAre("p"));
  }
}

}  // namespace
}  // namespace tenure::pd
