// Each numbered edge case of pd_protocol spec §9 that concerns what P holds, and the bounds.
#include "tenure/pd/handoff_leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using PullState = HandoffLeases::PullState;

constexpr WaiterId kFirst(1);
constexpr WaiterId kSecond(2);

class HandoffLeasesTest : public ::testing::Test {
 protected:
  static HandoffLeases Make(HandoffOptions options = {.lease = absl::Seconds(30)}) {
    auto leases = HandoffLeases::Create(options);
    TENURE_CHECK(leases.ok());
    return *std::move(leases);
  }

  MonotonicTime now() const { return clock_.Now(); }
  void AnnounceAndFinish(const std::string& transfer, const std::string& request, HandoffBlocks blocks = {{1, 2}}) {
    ASSERT_TRUE(leases_.Announce(transfer, request).ok());
    ASSERT_TRUE(leases_.Finish(transfer, request, std::move(blocks), now()).ok());
  }
  std::vector<std::string> Expired() { return leases_.Scan(now()).expired_requests; }
  std::optional<std::string> Send(const std::string& transfer, int64_t rank, bool written, int64_t needed) {
    EXPECT_TRUE(leases_.BeginSend(transfer, needed));
    return leases_.EndSend(transfer, {"d", rank, 0}, written, now());
  }
  void ExpectEnded(const std::string& transfer, HandoffEnd end) {
    const auto answer = leases_.Pull(transfer, WaiterId(99), now());
    EXPECT_EQ(answer.state, PullState::kEnded);
    EXPECT_EQ(answer.end, end);
  }
  void Renew(const std::string& transfer) {
    const std::string ids[] = {transfer};
    const auto unknown = leases_.Renew(ids, now());
    ASSERT_TRUE(unknown.ok()) << unknown.status();
    EXPECT_THAT(*unknown, IsEmpty());
  }

  ManualClock clock_{MonotonicTime::FromNanoseconds(1'000'000'000)};
  HandoffLeases leases_ = Make();
};

TEST_F(HandoffLeasesTest, EdgeCase1PullBeforeTheIdIsKnownWaitsFromItsOwnArrival) {
  EXPECT_EQ(leases_.Pull("x", kFirst, now()).state, PullState::kWaiting);
  clock_.Advance(absl::Seconds(100));
  EXPECT_EQ(leases_.Pull("x", kSecond, now()).state, PullState::kWaiting);
  clock_.Advance(absl::Seconds(380));
  EXPECT_THAT(leases_.Scan(now()).timed_out, ElementsAre(HandoffWaiter{"x", kFirst}));
  EXPECT_EQ(leases_.num_transfers(), 1u);
  clock_.Advance(absl::Seconds(100));
  EXPECT_THAT(leases_.Scan(now()).timed_out, ElementsAre(HandoffWaiter{"x", kSecond}));
  EXPECT_EQ(leases_.num_transfers(), 0u);
  EXPECT_EQ(leases_.num_waiters(), 0u);
}

TEST_F(HandoffLeasesTest, EdgeCase1PlaceholderGoesWithItsLastWaiter) {
  leases_.Pull("x", kFirst, now());
  leases_.Pull("x", kSecond, now());
  leases_.CancelWait("x", kFirst);
  EXPECT_EQ(leases_.num_transfers(), 1u);
  leases_.CancelWait("x", kSecond);
  EXPECT_EQ(leases_.num_transfers(), 0u);
}

TEST_F(HandoffLeasesTest, EdgeCase1WaitThatTimesOutLeavesTheAnnouncedTransfer) {
  leases_.Pull("x", kFirst, now());
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  clock_.Advance(absl::Seconds(480));
  const auto scan = leases_.Scan(now());
  EXPECT_THAT(scan.timed_out, ElementsAre(HandoffWaiter{"x", kFirst}));
  EXPECT_THAT(scan.expired_requests, IsEmpty());
  EXPECT_TRUE(leases_.Finish("x", "p", {{1}}, now()).ok());
}

TEST_F(HandoffLeasesTest, EdgeCase2HeldUntilEveryConsumerIsServedOrTheDeadline) {
  AnnounceAndFinish("x", "p");
  EXPECT_EQ(Send("x", 0, true, 2), std::nullopt);
  EXPECT_THAT(*leases_.FindBlocks("x"), ElementsAre(ElementsAre(1, 2)));
  EXPECT_EQ(Send("x", 1, true, 2), "p");
  EXPECT_EQ(leases_.FindBlocks("x"), nullptr);
  AnnounceAndFinish("y", "q");
  clock_.Advance(absl::Seconds(30) - absl::Nanoseconds(1));
  EXPECT_THAT(Expired(), IsEmpty());
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Expired(), ElementsAre("q"));
}

TEST_F(HandoffLeasesTest, EdgeCase2WaitersAreWokenByThePrefillsEnd) {
  leases_.Pull("x", kFirst, now());
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  EXPECT_EQ(leases_.Pull("x", kSecond, now()).state, PullState::kWaiting);
  EXPECT_THAT(*leases_.Finish("x", "p", {{1}}, now()), ElementsAre(kFirst, kSecond));
  EXPECT_EQ(leases_.num_waiters(), 0u);
  EXPECT_EQ(leases_.Pull("x", kFirst, now()).state, PullState::kReady);
}

TEST_F(HandoffLeasesTest, EdgeCase3LatePullIsToldAtOnceWhyItIsLate) {
  AnnounceAndFinish("expired", "p1");
  clock_.Advance(absl::Seconds(30));
  EXPECT_THAT(Expired(), ElementsAre("p1"));
  ExpectEnded("expired", HandoffEnd::kExpired);
  AnnounceAndFinish("sent", "p2");
  EXPECT_EQ(Send("sent", 0, true, 1), "p2");
  ExpectEnded("sent", HandoffEnd::kSent);
  ASSERT_TRUE(leases_.Announce("aborted", "p3").ok());
  leases_.Abandon("aborted", "p3", now());
  ExpectEnded("aborted", HandoffEnd::kAborted);
  EXPECT_EQ(leases_.num_waiters(), 0u);
}

TEST_F(HandoffLeasesTest, EdgeCase3HoldsWithTheLeaseOff) {
  leases_ = Make({});
  AnnounceAndFinish("x", "p");
  clock_.Advance(absl::Seconds(479));
  EXPECT_THAT(Expired(), IsEmpty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(Expired(), ElementsAre("p"));
  ExpectEnded("x", HandoffEnd::kExpired);
}

TEST_F(HandoffLeasesTest, EdgeCase4AbortWakesTheWaitersNow) {
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  leases_.Pull("x", kFirst, now());
  leases_.Pull("x", kSecond, now());
  EXPECT_THAT(leases_.Abandon("x", "p", now()), ElementsAre(kFirst, kSecond));
  EXPECT_EQ(leases_.num_transfers(), 0u);
}

TEST_F(HandoffLeasesTest, EdgeCase6AbortOfAnUnannouncedIdOnlyMarksItDead) {
  EXPECT_THAT(leases_.Abandon("x", "p", now()), IsEmpty());
  ExpectEnded("x", HandoffEnd::kAborted);
  leases_.Pull("y", kFirst, now());
  EXPECT_THAT(leases_.Abandon("y", "p", now()), ElementsAre(kFirst));
  ExpectEnded("y", HandoffEnd::kAborted);
}

TEST_F(HandoffLeasesTest, EdgeCase7NothingExpiresWhileItIsSent) {
  AnnounceAndFinish("x", "p");
  ASSERT_TRUE(leases_.BeginSend("x", 1));
  clock_.Advance(absl::Seconds(300));
  EXPECT_THAT(Expired(), IsEmpty());
  EXPECT_EQ(leases_.EndSend("x", {"d", 0, 0}, false, now()), std::nullopt);
  EXPECT_THAT(Expired(), ElementsAre("p"));
}

TEST_F(HandoffLeasesTest, EdgeCase9TransferThatIsGoneCannotBeSent) {
  EXPECT_FALSE(leases_.BeginSend("x", 1));
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  EXPECT_FALSE(leases_.BeginSend("x", 1));
  leases_.Abandon("x", "p", now());
  EXPECT_FALSE(leases_.BeginSend("x", 1));
}

TEST_F(HandoffLeasesTest, EdgeCase10FailedSendLeavesTheKvForARetryWithinTheLease) {
  AnnounceAndFinish("x", "p");
  EXPECT_EQ(Send("x", 0, false, 2), std::nullopt);
  EXPECT_EQ(Send("x", 1, true, 2), std::nullopt);
  EXPECT_EQ(Send("x", 0, true, 2), "p");
}

TEST_F(HandoffLeasesTest, EdgeCase11ConsumerThatPullsTwiceCountsOnce) {
  AnnounceAndFinish("x", "p");
  EXPECT_EQ(Send("x", 0, true, 2), std::nullopt);
  EXPECT_EQ(Send("x", 0, true, 2), std::nullopt);
  ASSERT_TRUE(leases_.BeginSend("x", 2));
  EXPECT_EQ(leases_.EndSend("x", {"d", 0, 1}, true, now()), "p") << "another pipeline rank is another consumer";
}

TEST_F(HandoffLeasesTest, EdgeCase11RetryThatRunsKeepsTheBlocksOfTheLastConsumer) {
  AnnounceAndFinish("x", "p");
  ASSERT_TRUE(leases_.BeginSend("x", 1));
  ASSERT_TRUE(leases_.BeginSend("x", 1));
  EXPECT_EQ(leases_.EndSend("x", {"d", 0, 0}, true, now()), std::nullopt);
  EXPECT_NE(leases_.FindBlocks("x"), nullptr);
  EXPECT_EQ(leases_.EndSend("x", {"d", 0, 0}, false, now()), "p");
}

TEST_F(HandoffLeasesTest, EdgeCase12SecondRequestWithTheSameIdIsRefusedAndHarmsNothing) {
  ASSERT_TRUE(leases_.Announce("x", "p1").ok());
  const absl::Status refused = leases_.Announce("x", "p2");
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("transfer_id x of request p2 is request p1's"));
  EXPECT_TRUE(absl::IsFailedPrecondition(leases_.Finish("x", "p2", {{9}}, now()).status()));
  EXPECT_THAT(leases_.Abandon("x", "p2", now()), IsEmpty());
  ASSERT_TRUE(leases_.Finish("x", "p1", {{1}}, now()).ok());
  EXPECT_THAT(*leases_.FindBlocks("x"), ElementsAre(ElementsAre(1)));
}

TEST_F(HandoffLeasesTest, EdgeCase12AnnouncementAfterAPreemptionChangesNothing) {
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  leases_.Pull("x", kFirst, now());
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  EXPECT_THAT(*leases_.Finish("x", "p", {{1}}, now()), ElementsAre(kFirst));
}

TEST_F(HandoffLeasesTest, EdgeCase13FinishedWithoutBlocksIsReady) {
  for (const HandoffBlocks& none : {HandoffBlocks{}, HandoffBlocks{{}}}) {
    AnnounceAndFinish("x", "p", none);
    EXPECT_EQ(leases_.Pull("x", kFirst, now()).state, PullState::kReady);
    EXPECT_EQ(*leases_.FindBlocks("x"), none);
    EXPECT_EQ(Send("x", 0, true, 1), "p");
  }
}

TEST_F(HandoffLeasesTest, EdgeCase31TransferRenewedFromArrivalDoesNotExpire) {
  ASSERT_TRUE(leases_.Announce("x", "p").ok());
  Renew("x");  // Before the prefill's end: harmless.
  clock_.Advance(absl::Seconds(1000));
  EXPECT_THAT(Expired(), IsEmpty());
  ASSERT_TRUE(leases_.Finish("x", "p", {{1}}, now()).ok());
  for (int i = 0; i < 1000; ++i) {
    clock_.Advance(absl::Seconds(5));
    Renew("x");
    EXPECT_THAT(Expired(), IsEmpty());
  }
  clock_.Advance(absl::Seconds(20) - absl::Nanoseconds(1));
  EXPECT_THAT(Expired(), IsEmpty());
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Expired(), ElementsAre("p"));
}

TEST_F(HandoffLeasesTest, RenewalNeverShortensALease) {
  AnnounceAndFinish("x", "p");
  clock_.Advance(absl::Seconds(5));
  Renew("x");  // 25 s in place of 30 s.
  clock_.Advance(absl::Seconds(24));
  EXPECT_THAT(Expired(), IsEmpty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(Expired(), ElementsAre("p"));
}

TEST_F(HandoffLeasesTest, EdgeCase34RenewalEitherExtendsOrFindsNothing) {
  AnnounceAndFinish("x", "p");
  clock_.Advance(absl::Seconds(40));
  Renew("x");  // Past its deadline, but no scan has freed it.
  EXPECT_THAT(Expired(), IsEmpty());
  clock_.Advance(absl::Seconds(20));
  EXPECT_THAT(Expired(), ElementsAre("p"));
  const std::string ids[] = {"x"};
  EXPECT_THAT(*leases_.Renew(ids, now()), ElementsAre("x"));
  EXPECT_EQ(leases_.num_transfers(), 0u);
  ExpectEnded("x", HandoffEnd::kExpired);
}

TEST_F(HandoffLeasesTest, EdgeCase35RenewalOfAnUnknownIdMakesNoPlaceholder) {
  ASSERT_TRUE(leases_.Announce("aborted", "p").ok());
  leases_.Abandon("aborted", "p", now());
  leases_.Pull("placeholder", kFirst, now());
  const std::string ids[] = {"never seen", "aborted", "placeholder"};
  EXPECT_THAT(*leases_.Renew(ids, now()), ElementsAre("never seen", "aborted", "placeholder"));
  EXPECT_EQ(leases_.num_transfers(), 1u);
}

TEST_F(HandoffLeasesTest, EdgeCase36RenewalByEveryRankIsOneRenewal) {
  AnnounceAndFinish("x", "p");
  clock_.Advance(absl::Seconds(20));
  for (int rank = 0; rank < 8; ++rank) Renew("x");
  clock_.Advance(absl::Seconds(20));
  EXPECT_THAT(Expired(), ElementsAre("p"));
}

TEST_F(HandoffLeasesTest, EdgeCase38RenewalIsRefusedWithTheLeaseOff) {
  leases_ = Make({});
  const std::string ids[] = {"x"};
  const auto refused = leases_.Renew(ids, now());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("kv_lease_duration"));
}

TEST_F(HandoffLeasesTest, EdgeCase39AnnouncementForgetsTheEarlierEnd) {
  AnnounceAndFinish("x", "p1");
  EXPECT_EQ(Send("x", 0, true, 1), "p1");
  ExpectEnded("x", HandoffEnd::kSent);
  ASSERT_TRUE(leases_.Announce("x", "p2").ok());
  EXPECT_EQ(leases_.num_remembered(), 0u);
  EXPECT_EQ(leases_.Pull("x", kFirst, now()).state, PullState::kWaiting);
  EXPECT_THAT(*leases_.Finish("x", "p2", {{1}}, now()), ElementsAre(kFirst));
}

TEST_F(HandoffLeasesTest, EdgeCase39EndsAreRememberedForATimeAndUpToACount) {
  leases_ = Make({.lease = absl::Seconds(30), .remembered_max = 2});
  for (const char* id : {"a", "b", "c"}) leases_.Abandon(id, "p", now());
  EXPECT_EQ(leases_.num_remembered(), 2u);
  EXPECT_EQ(leases_.Pull("a", kFirst, now()).state, PullState::kWaiting);
  ExpectEnded("b", HandoffEnd::kAborted);
  clock_.Advance(absl::Seconds(479));
  leases_.Scan(now());
  ExpectEnded("c", HandoffEnd::kAborted);
  clock_.Advance(absl::Seconds(1));
  leases_.Scan(now());
  EXPECT_EQ(leases_.num_remembered(), 0u);
}

TEST_F(HandoffLeasesTest, RenewedHeadDoesNotHideWhatIsBehindIt) {
  AnnounceAndFinish("renewed", "p1");
  AnnounceAndFinish("left", "p2");
  clock_.Advance(absl::Seconds(25));
  Renew("renewed");
  clock_.Advance(absl::Seconds(5));
  EXPECT_THAT(Expired(), ElementsAre("p2"));
}

TEST_F(HandoffLeasesTest, FullTableRefusesPullsAndAnnouncements) {
  leases_ = Make({.lease = absl::Seconds(30), .transfers_max = 1, .waiters_max = 2});
  leases_.Pull("x", kFirst, now());
  EXPECT_EQ(leases_.Pull("y", kSecond, now()).state, PullState::kFull);
  EXPECT_TRUE(absl::IsResourceExhausted(leases_.Announce("y", "p")));
  EXPECT_TRUE(leases_.Announce("x", "p").ok()) << "a placeholder becomes the transfer";
  EXPECT_EQ(leases_.Pull("x", kSecond, now()).state, PullState::kWaiting);
  EXPECT_EQ(leases_.Pull("x", WaiterId(3), now()).state, PullState::kFull);
}

TEST_F(HandoffLeasesTest, OptionsThatAreNoDurationsAreRefused) {
  for (const absl::Duration lease : {absl::ZeroDuration(), -absl::Seconds(1), absl::InfiniteDuration()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HandoffLeases::Create({.lease = lease}).status())) << lease;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(HandoffLeases::Create({.hold_timeout = absl::ZeroDuration()}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(HandoffLeases::Create({.transfers_max = 0}).status()));
}

}  // namespace
}  // namespace tenure::pd
