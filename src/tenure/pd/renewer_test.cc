// To whom D's renewals go, and what their answers and their absence mean (pd_protocol spec §6, §9).
#include "tenure/pd/renewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace tenure::pd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kLease = absl::Seconds(30);
using Batches = std::vector<RenewalSchedule::Batch>;

RegisteredEngine EngineOf(int64_t tp_size, std::optional<double> lease = 30) {
  RegisteredEngine engine;
  engine.engine_id = "e";
  engine.kv_lease_duration = lease;
  engine.tp_size = tp_size;
  engine.pp_size = 1;
  for (int64_t tp = 0; tp < tp_size; ++tp) engine.addresses[tp][0] = fmt::format("tcp://e:{}", tp);
  return engine;
}

class RenewerTest : public ::testing::Test {
 protected:
  static Renewer Make() {
    auto renewer = Renewer::Create({kLease});
    TENURE_CHECK(renewer.ok());
    renewer->Locate("e", "http://b");
    return *std::move(renewer);
  }
  MonotonicTime now() const { return clock_.Now(); }
  RenewerActions Answered(RegisteredEngine engine) {
    return renewer_.OnQueryAnswer("http://b", std::map<int64_t, RegisteredEngine>{{0, std::move(engine)}}, now());
  }
  RenewerActions Renew(const Batches& batches) { return renewer_.Renew(batches, now()); }
  std::vector<ChannelMessage> FirstRound(const Batches& batches, int64_t tp_size = 1) {
    Renew(batches);
    return Answered(EngineOf(tp_size)).sends;
  }
  RenewerActions Replied(const ChannelMessage& message, std::vector<std::string> unknown = {}) {
    Reply reply;
    reply.unknown_transfer_ids = std::move(unknown);
    return renewer_.OnReply(message.channel, *EncodeReply(reply), now());
  }
  RenewerActions Refused(const ChannelMessage& message) {
    Reply reply;
    reply.status = ReplyStatus::kError;
    reply.err_message = "Object missing required field `remote_hostname`";
    return renewer_.OnReply(message.channel, *EncodeReply(reply), now());
  }
  RenewerActions NextRound(const Batches& batches) {
    clock_.Advance(kLease / 6);
    return Renew(batches);
  }

  ManualClock clock_{MonotonicTime::FromNanoseconds(1'000'000'000)};
  Renewer renewer_ = Make();
};

TEST_F(RenewerTest, EveryWorkerOfTheEngineIsToldTheBatchAndTheLeaseEdge36) {
  EXPECT_THAT(Renew({{"e", {"x", "y"}}}).queries, ElementsAre("http://b"));
  const auto sends = Answered(EngineOf(2)).sends;
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[1].address, "tcp://e:1");
  const Renewal renewal = *DecodeRenewal(sends[1].bytes);
  EXPECT_THAT(renewal.transfer_ids, ElementsAre("x", "y"));
  EXPECT_EQ(renewal.kv_lease_duration, 30);
  EXPECT_EQ(sends[1].deadline, now() + kLease / 6);
  EXPECT_THAT(Replied(sends[0]).closes, ElementsAre(sends[0].channel));
  EXPECT_THAT(Replied(sends[1]).sends, IsEmpty());
  EXPECT_EQ(renewer_.num_channels(), 0u);
  EXPECT_THAT(NextRound({{"e", {"x"}}}).sends, SizeIs(2));  // Without asking again.
}

TEST_F(RenewerTest, WorkerHasOneMessageOpenAndGetsTheNextBatchWithItsAnswerEdge37) {
  const auto sends = FirstRound({{"e", {"a"}}, {"e", {"b"}}, {"e", {"c"}}});
  ASSERT_THAT(sends, SizeIs(1));
  const auto second = Replied(sends[0]).sends;
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_THAT(DecodeRenewal(second[0].bytes)->transfer_ids, ElementsAre("b"));
  // The round ends with the second unanswered; what is left of it is dropped, and the third batch is first in turn.
  clock_.Advance(kLease / 6);
  const RenewerActions late = renewer_.Tick(now());
  EXPECT_THAT(late.closes, ElementsAre(second[0].channel));
  EXPECT_THAT(late.warnings, SizeIs(1));
  Renew({{"e", {"a"}}, {"e", {"b"}}, {"e", {"c"}}});
  const auto third = Answered(EngineOf(1)).sends;
  ASSERT_THAT(third, SizeIs(1));
  EXPECT_THAT(DecodeRenewal(third[0].bytes)->transfer_ids, ElementsAre("c"));
}

TEST_F(RenewerTest, HungWorkerCostsOneChannelAndDisturbsNoOtherEdge36) {
  auto sends = FirstRound({{"e", {"a"}}}, 2);
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(Replied(sends[0]).closes, SizeIs(1));
    EXPECT_EQ(renewer_.num_channels(), 1u);
    EXPECT_EQ(renewer_.NextTick(), now() + kLease / 6);
    clock_.Advance(kLease / 6);
    EXPECT_THAT(renewer_.Tick(now()).closes, ElementsAre(sends[1].channel));
    Renew({{"e", {"a"}}});
    sends = Answered(EngineOf(2)).sends;
    ASSERT_THAT(sends, SizeIs(2));
  }
}

TEST_F(RenewerTest, FailedQueryIsSaidAndTriedInTheNextRoundEdge37) {
  Renew({{"e", {"a"}}});
  EXPECT_THAT(renewer_.OnQueryAnswer("http://b", Unavailable("down"), now()).warnings, ElementsAre(HasSubstr("down")));
  EXPECT_THAT(NextRound({{"e", {"a"}}}).queries, ElementsAre("http://b"));
  RegisteredEngine partial = EngineOf(2);
  partial.addresses.erase(1);
  EXPECT_THAT(Answered(partial).sends, IsEmpty());
  EXPECT_THAT(NextRound({{"e", {"a"}}}).queries, ElementsAre("http://b"));
  EXPECT_THAT(Renew({{"e", {"a"}}}).queries, IsEmpty());  // One at a time.
  EXPECT_THAT(Answered(EngineOf(1)).sends, SizeIs(1));
}

TEST_F(RenewerTest, BrokenConnectionAsksAgainEdge37) {
  const auto sends = FirstRound({{"e", {"a"}}});
  EXPECT_THAT(renewer_.OnChannelFailed(sends[0].channel, "reset", now()).warnings, ElementsAre(HasSubstr("reset")));
  EXPECT_THAT(NextRound({{"e", {"a"}}}).queries, SizeIs(1));
  EXPECT_EQ(renewer_.num_channels(), 0u);
}

TEST_F(RenewerTest, DeadEngineIsSaidOnceAndSoIsItsReturn) {
  const auto sends = FirstRound({{"e", {"a"}}});
  EXPECT_THAT(renewer_.OnChannelFailed(sends[0].channel, "reset", now()).warnings,
              ElementsAre(AllOf(HasSubstr("do not reach engine e"), HasSubstr("reset"))));
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(NextRound({{"e", {"a"}}}).queries, SizeIs(1));
    if (round % 2 == 0) {
      EXPECT_THAT(renewer_.OnQueryAnswer("http://b", Unavailable("down"), now()).warnings, IsEmpty());
    } else {
      const auto again = Answered(EngineOf(1)).sends;
      EXPECT_THAT(renewer_.OnChannelFailed(again.at(0).channel, "reset", now()).warnings, IsEmpty());
    }
  }
  NextRound({{"e", {"a"}}});
  EXPECT_THAT(Replied(Answered(EngineOf(1)).sends.at(0)).warnings, ElementsAre("renewals reach engine e again"));
  const auto next = NextRound({{"e", {"a"}}}).sends;
  EXPECT_THAT(Replied(next.at(0)).warnings, IsEmpty());
  EXPECT_THAT(renewer_.OnChannelFailed(NextRound({{"e", {"a"}}}).sends.at(0).channel, "reset", now()).warnings,
              SizeIs(1));
}

TEST_F(RenewerTest, OneSilentWorkerOfTwoIsSaidOnceAndItsEngineReturnsWithIt) {
  auto sends = FirstRound({{"e", {"a"}}}, 2);
  size_t warnings = 0;
  for (int round = 0; round < 3; ++round) {
    warnings += Replied(sends.at(0)).warnings.size();
    clock_.Advance(kLease / 6);
    warnings += renewer_.Tick(now()).warnings.size();
    Renew({{"e", {"a"}}});
    sends = Answered(EngineOf(2)).sends;
  }
  EXPECT_EQ(warnings, 1u);
  EXPECT_THAT(Replied(sends.at(1)).warnings, ElementsAre("renewals reach engine e again"));
}

TEST_F(RenewerTest, EngineThatReturnsWithFewerWorkersIsReachedAgain) {
  auto sends = FirstRound({{"e", {"a"}}}, 2);
  EXPECT_THAT(renewer_.OnChannelFailed(sends.at(1).channel, "reset", now()).warnings, SizeIs(1));
  NextRound({{"e", {"a"}}});
  Replied(sends.at(0));
  RegisteredEngine started_again = EngineOf(1);
  started_again.incarnation = 2;
  NextRound({{"e", {"a"}}});
  EXPECT_THAT(Replied(Answered(started_again).sends.at(0)).warnings, ElementsAre("renewals reach engine e again"));
}

TEST_F(RenewerTest, EngineThatKnowsNoRenewalsIsWarnedOfOnceAndLeftAloneEdge38) {
  const auto sends = FirstRound({{"e", {"a"}}}, 2);
  EXPECT_THAT(Refused(sends[0]).warnings, ElementsAre(HasSubstr("remote_hostname")));
  EXPECT_THAT(Refused(sends[1]).warnings, IsEmpty());
  const RenewerActions next = NextRound({{"e", {"a"}}});
  EXPECT_THAT(next.sends, IsEmpty());
  EXPECT_THAT(next.queries, IsEmpty());
  EXPECT_THAT(next.warnings, IsEmpty());
}

TEST_F(RenewerTest, OtherPublishedLeaseGetsNoRenewals) {
  Renew({{"e", {"a"}}});
  const RenewerActions answered = Answered(EngineOf(1, std::nullopt));
  EXPECT_THAT(answered.sends, IsEmpty());
  EXPECT_THAT(answered.warnings, SizeIs(1));
  EXPECT_THAT(answered.warnings[0], AllOf(HasSubstr("30"), HasSubstr("off")));
  EXPECT_THAT(NextRound({{"e", {"a"}}}).warnings, IsEmpty());
  const RenewerStats stats = renewer_.TakeStats();
  EXPECT_EQ(stats.lease_mismatches, 1);
  EXPECT_EQ(stats.refusing_engines, 1);
  EXPECT_EQ(stats.sent, 0);
}

TEST_F(RenewerTest, TransferThatWasHeldAndIsNoMoreIsGoneOnceEdge34) {
  auto sends = FirstRound({{"e", {"a", "b"}}}, 2);
  EXPECT_THAT(Replied(sends[0]).gone, IsEmpty());
  EXPECT_THAT(Replied(sends[1], {"a", "b"}).gone, IsEmpty());  // P's second rank has not stepped yet.
  sends = NextRound({{"e", {"a", "b"}}}).sends;
  const RenewerActions first = Replied(sends[0], {"a"});
  ASSERT_THAT(first.gone, SizeIs(1));
  EXPECT_EQ(first.gone[0].engine_id, "e");
  EXPECT_EQ(first.gone[0].transfer_id, "a");
  Replied(sends[1]);
  sends = NextRound({{"e", {"a", "b"}}}).sends;
  EXPECT_THAT(Replied(sends[0], {"a"}).gone, IsEmpty());
  EXPECT_THAT(Replied(sends[1], {"a"}).gone, IsEmpty());
}

TEST_F(RenewerTest, TransferOfAnEarlierRoundIsNobodysLoss) {
  auto sends = FirstRound({{"e", {"a"}}});
  Replied(sends[0]);
  sends = NextRound({{"e", {"a"}}}).sends;
  Renew({{"e", {"b"}}});
  EXPECT_THAT(Replied(sends[0], {"a"}).gone, IsEmpty());
}

TEST_F(RenewerTest, AnswersThatMakeNoSenseAreHarmless) {
  const auto sends = FirstRound({{"e", {"a"}}});
  EXPECT_THAT(renewer_.OnReply(ChannelId(99), "", now()).closes, IsEmpty());
  EXPECT_THAT(renewer_.OnReply(sends[0].channel, "\xc1", now()).closes, SizeIs(1));
  EXPECT_THAT(Replied(sends[0]).closes, IsEmpty());
  EXPECT_THAT(renewer_.OnQueryAnswer("http://nobody", Unavailable("down"), now()).warnings, IsEmpty());
}

TEST_F(RenewerTest, EnginesThatNothingIsWantedFromAreForgottenBeyondTheMaximum) {
  renewer_ = *Renewer::Create({kLease, 1});
  renewer_.Locate("e", "http://b");
  const auto sends = FirstRound({{"e", {"a"}}});
  renewer_.Locate("f", "http://c");
  EXPECT_THAT(NextRound({{"f", {"b"}}}).queries, ElementsAre("http://c"));
  EXPECT_THAT(Replied(sends[0], {"a"}).gone, IsEmpty());  // Of the engine that is forgotten.
}

TEST_F(RenewerTest, WhatHappensIsCounted) {
  auto sends = FirstRound({{"e", {"a", "b"}}}, 2);
  Replied(sends.at(0));
  renewer_.OnReply(sends.at(1).channel, "\xc1", now());
  NextRound({{"e", {"a", "b"}}});
  renewer_.OnQueryAnswer("http://b", Unavailable("down"), now());
  NextRound({{"e", {"a", "b"}}});
  sends = Answered(EngineOf(2)).sends;
  Replied(sends.at(0), {"a"});
  Refused(sends.at(1));
  const RenewerStats stats = renewer_.TakeStats();
  EXPECT_EQ(stats.sent, 4);
  EXPECT_EQ(stats.lost, 1);
  EXPECT_EQ(stats.failed_queries, 1);
  EXPECT_EQ(stats.gone_transfers, 1);
  EXPECT_EQ(stats.refusing_engines, 1);
  EXPECT_EQ(stats.lease_mismatches, 0);
  EXPECT_EQ(renewer_.TakeStats().sent, 0);
}

TEST_F(RenewerTest, LeaseIsChecked) { EXPECT_FALSE(Renewer::Create({absl::ZeroDuration()}).ok()); }

}  // namespace
}  // namespace tenure::pd
