// What a prefill worker does with each message, at each edge of pd_protocol spec §9 that is its own.
#include "tenure/pd/producer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/golden_wire_testing.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr double kLease = 30;
constexpr uint64_t kPrefillBase = 1 << 20;
constexpr uint64_t kDecodeBase = 1 << 24;
constexpr int64_t kBlocks = 16;

WorkerRank Rank(int64_t tp_size, int64_t tp_rank) { return {tp_size, tp_rank, 1, 0}; }

class ProducerTest : public ::testing::Test {
 protected:
  static Producer Make(WorkerRank rank = Rank(1, 0), std::optional<double> lease = kLease) {
    ProducerOptions options;
    if (lease) options.handoff.lease = absl::Seconds(*lease);
    return Make(options, rank);
  }
  static Producer Make(const ProducerOptions& options, WorkerRank rank = Rank(1, 0)) {
    auto producer = Producer::Create(options, TinyLayout(rank, kPrefillBase, kBlocks), TinyTraits());
    TENURE_CHECK(producer.ok());
    return *std::move(producer);
  }

  MonotonicTime now() const { return clock_.Now(); }
  ProducerActions Announce(const std::string& transfer, const std::string& request) {
    StepOrders orders;
    orders.announced.push_back({request, transfer});
    return producer_.RecordStep(orders, now());
  }
  ProducerActions Finish(const std::string& transfer, const std::string& request, HandoffBlocks blocks = {{1, 2}}) {
    StepOrders orders;
    orders.finished.push_back({request, transfer, std::move(blocks)});
    return producer_.RecordStep(orders, now());
  }
  ProducerActions Abort(const std::string& transfer, const std::string& request) {
    StepOrders orders;
    orders.aborted.push_back({request, transfer});
    return producer_.RecordStep(orders, now());
  }
  void Prefill(const std::string& transfer, const std::string& request) {
    Announce(transfer, request);
    Finish(transfer, request);
  }

  static Pull PullOf(std::vector<PullRequest> requests, WorkerRank rank = Rank(1, 0)) {
    Pull pull = TinyPull(TinyLayout(rank, kDecodeBase, kBlocks), "d", kLease);
    pull.requests = std::move(requests);
    return pull;
  }
  ProducerActions SendPull(const std::string& peer, const Pull& pull) {
    return producer_.OnMessage(peer, *EncodePull(pull), now());
  }
  ProducerActions Send(const std::string& peer, std::vector<PullRequest> requests, WorkerRank rank = Rank(1, 0)) {
    return SendPull(peer, PullOf(std::move(requests), rank));
  }
  ProducerActions Renew(std::vector<std::string> ids, std::optional<double> lease = std::nullopt) {
    return producer_.OnMessage("renewer", *EncodeRenewal({std::move(ids), lease}), now());
  }
  ProducerActions Wrote(const HandoffWrite& write) { return producer_.OnWriteDone(write.id, WriteResult(), now()); }
  ProducerActions WriteFailed(const HandoffWrite& write, bool settled) {
    return producer_.OnWriteDone(write.id, {Unavailable("the peer is gone"), settled}, now());
  }
  static Reply OnlyReply(const ProducerActions& actions) {
    EXPECT_THAT(actions.replies, SizeIs(1));
    if (actions.replies.size() != 1) return Reply();
    return *DecodeReply(actions.replies[0].bytes);
  }

  ManualClock clock_{MonotonicTime::FromNanoseconds(1'000'000'000)};
  Producer producer_ = Make();
};

Reply Finished(std::vector<std::string> ok) {
  Reply reply;
  reply.ok_requests = std::move(ok);
  return reply;
}

TEST_F(ProducerTest, PullOfAFinishedPrefillIsOneWriteAndThenOneFinish) {
  Prefill("x", "p");
  Prefill("y", "q");
  const ProducerActions pulled = Send("a", {{"d1", "x", {{3, 4}}}, {"d2", "y", {{5, 6}}}});
  EXPECT_THAT(pulled.replies, IsEmpty());
  ASSERT_THAT(pulled.writes, SizeIs(1));
  EXPECT_EQ(pulled.writes[0].peer->remote_hostname, "d");
  EXPECT_THAT(pulled.writes[0].peer->requests, IsEmpty());
  int64_t bytes = 0;
  for (const WritePiece& piece : pulled.writes[0].pieces) bytes += static_cast<int64_t>(piece.size);
  EXPECT_EQ(bytes, 4 * kTinyLayers * kTinyHeads * kTinyHeadBytes);
  EXPECT_EQ(pulled.writes[0].deadline, now() + absl::Seconds(30) + absl::Nanoseconds(bytes));

  const ProducerActions wrote = Wrote(pulled.writes[0]);
  EXPECT_EQ(OnlyReply(wrote), Finished({"d1", "d2"}));
  EXPECT_EQ(wrote.replies[0].peer, "a");
  EXPECT_THAT(wrote.finished_requests, ElementsAre("p", "q"));
  EXPECT_EQ(producer_.num_pulls(), 0u);
  EXPECT_EQ(producer_.num_transfers(), 0u);
  const ProducerStats stats = producer_.TakeStats();
  ASSERT_THAT(stats.writes, SizeIs(1));
  EXPECT_EQ(stats.writes[0].bytes, bytes);
}

TEST_F(ProducerTest, RequestsThatBecomeReadyLaterAreContinuedAndTheLastOneFinishes) {
  Announce("x", "p");
  Announce("y", "q");
  EXPECT_THAT(Send("a", {{"d1", "x", {{3, 4}}}, {"d2", "y", {{5, 6}}}}).replies, IsEmpty());
  const ProducerActions first = Finish("y", "q");
  ASSERT_THAT(first.writes, SizeIs(1));
  Reply expected = Finished({"d2"});
  expected.status = ReplyStatus::kContinue;
  EXPECT_EQ(OnlyReply(Wrote(first.writes[0])), expected);
  EXPECT_EQ(OnlyReply(Wrote(Finish("x", "p").writes[0])), Finished({"d1"}));
}

TEST_F(ProducerTest, PullWithoutRequestsIsFinished) { EXPECT_EQ(OnlyReply(SendPull("a", PullOf({}))), Reply()); }

TEST_F(ProducerTest, PullBeforeTheIdIsKnownWaitsFromItsOwnArrivalEdge1) {
  Send("a", {{"d1", "x", {{3, 4}}}});
  clock_.Advance(absl::Seconds(400));
  Send("b", {{"d2", "x", {{5, 6}}}});
  clock_.Advance(absl::Seconds(80));
  const ProducerActions scanned = producer_.Scan(now());
  ASSERT_THAT(scanned.replies, SizeIs(1));
  EXPECT_EQ(scanned.replies[0].peer, "a");
  const Reply reply = OnlyReply(scanned);
  EXPECT_EQ(reply.status, ReplyStatus::kFinish);
  EXPECT_THAT(reply.err_requests, ElementsAre("d1"));
  EXPECT_THAT(reply.err_message, Optional(HasSubstr("did not end within 480 s")));
  clock_.Advance(absl::Seconds(400));
  EXPECT_THAT(OnlyReply(producer_.Scan(now())).err_requests, ElementsAre("d2"));
  EXPECT_EQ(producer_.num_transfers(), 0u);
  EXPECT_EQ(producer_.num_pulls(), 0u);
  EXPECT_EQ(producer_.TakeStats().timed_out_pulls, 2);
}

TEST_F(ProducerTest, BlocksAreFreedAfterTheLastConsumerEdge2) {
  Prefill("x", "p");
  const ProducerActions first = Send("a", {{"d", "x", {{3, 4}}}}, Rank(2, 0));
  ASSERT_THAT(first.writes, SizeIs(1));
  EXPECT_THAT(Wrote(first.writes[0]).finished_requests, IsEmpty());
  clock_.Advance(absl::Seconds(29));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, IsEmpty());
  const ProducerActions second = Send("b", {{"d", "x", {{3, 4}}}}, Rank(2, 1));
  EXPECT_THAT(Wrote(second.writes[0]).finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, LatePullIsAnsweredAtOnceAndItsNeighbourGoesOnEdge3) {
  Prefill("expired", "p");
  clock_.Advance(absl::Seconds(30));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, ElementsAre("p"));
  Abort("aborted", "q");
  Prefill("sent", "r");
  Wrote(Send("a", {{"d", "sent", {{3, 4}}}}).writes[0]);
  Announce("neighbour", "s");

  const ProducerActions late = Send(
      "b", {{"d1", "expired", {{3}}}, {"d2", "aborted", {{4}}}, {"d3", "sent", {{5}}}, {"d4", "neighbour", {{6}}}});
  const Reply reply = OnlyReply(late);
  EXPECT_EQ(reply.status, ReplyStatus::kContinue);
  EXPECT_THAT(reply.err_requests, ElementsAre("d1", "d2", "d3"));
  EXPECT_THAT(reply.err_message, Optional(AllOf(HasSubstr("expired has expired"), HasSubstr("ended without KV"),
                                                HasSubstr("sent has been handed over"))));
  EXPECT_THAT(late.warnings, SizeIs(1));
  EXPECT_EQ(producer_.TakeStats().late_pulls, 3);
  EXPECT_EQ(OnlyReply(Wrote(Finish("neighbour", "s").writes[0])), Finished({"d4"}));
}

TEST_F(ProducerTest, LatePullIsAnsweredAtOnceWithTheLeaseOffTooEdge3) {
  producer_ = Make(Rank(1, 0), std::nullopt);
  Prefill("x", "p");
  clock_.Advance(absl::Seconds(480));
  producer_.Scan(now());
  Pull pull = PullOf({{"d", "x", {{3}}}});
  pull.kv_lease_duration.reset();
  EXPECT_THAT(OnlyReply(SendPull("a", pull)).err_requests, ElementsAre("d"));
}

TEST_F(ProducerTest, AbortWhileDWaitsIsToldAtOnceEdge4) {
  Announce("x", "p");
  Announce("y", "q");
  Send("a", {{"d1", "x", {{3, 4}}}, {"d2", "y", {{5, 6}}}});
  const Reply reply = OnlyReply(Abort("x", "p"));
  EXPECT_EQ(reply.status, ReplyStatus::kContinue);
  EXPECT_THAT(reply.err_requests, ElementsAre("d1"));
}

TEST_F(ProducerTest, AbortOfWhatWasNeverAnnouncedDisturbsNobodyEdge6) {
  StepOrders orders;
  orders.aborted = {{"p", "never"}, {"q", "announced"}};
  Announce("announced", "q");
  producer_.RecordStep(orders, now());
  EXPECT_THAT(OnlyReply(Send("a", {{"d1", "never", {{3}}}, {"d2", "announced", {{4}}}})).err_requests,
              ElementsAre("d1", "d2"));
}

TEST_F(ProducerTest, NothingIsFreedWhileItIsSentAndTheNextScanFreesAfterAFailureEdge7) {
  Prefill("x", "p");
  const ProducerActions pulled = Send("a", {{"d", "x", {{3, 4}}}});
  clock_.Advance(absl::Seconds(100));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, IsEmpty());
  EXPECT_EQ(producer_.TakeStats().overdue_writes, 1);
  EXPECT_THAT(WriteFailed(pulled.writes[0], true).finished_requests, IsEmpty());
  const ProducerActions scanned = producer_.Scan(now());
  EXPECT_THAT(scanned.finished_requests, ElementsAre("p"));
  EXPECT_EQ(producer_.TakeStats().expired_requests, 1);
}

TEST_F(ProducerTest, BlocksThatDoNotFitFailOneRequestAndLeaveNoSendBehindEdge8) {
  Prefill("x", "p");
  Prefill("y", "q");
  const ProducerActions pulled = Send("a", {{"d1", "x", {{3, 4, 5, 6}}}, {"d2", "y", {{5, 6}}}});
  const Reply refused = OnlyReply(pulled);
  EXPECT_EQ(refused.status, ReplyStatus::kContinue);
  EXPECT_THAT(refused.err_requests, ElementsAre("d1"));
  EXPECT_EQ(OnlyReply(Wrote(pulled.writes[0])), Finished({"d2"}));
  clock_.Advance(absl::Seconds(30));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, ElementsAre("p"));
  EXPECT_EQ(producer_.TakeStats().refused_requests, 1);
}

TEST_F(ProducerTest, RequestWhoseTransferGoesInTheSameStepIsAnErrorEdge9) {
  Send("a", {{"d1", "x", {}}});
  Send("b", {{"d2", "x", {{3, 4}}}});
  Announce("x", "p");
  const ProducerActions finished = Finish("x", "p");
  ASSERT_THAT(finished.replies, SizeIs(2));
  EXPECT_EQ(*DecodeReply(finished.replies[0].bytes), Finished({"d1"}));
  const Reply reply = *DecodeReply(finished.replies[1].bytes);
  EXPECT_EQ(reply.status, ReplyStatus::kFinish);
  EXPECT_THAT(reply.err_requests, ElementsAre("d2"));
  EXPECT_THAT(finished.writes, IsEmpty());
}

TEST_F(ProducerTest, FailureToOneConsumerLeavesTheOthersAndARetrySucceedsEdge10) {
  Prefill("x", "p");
  const ProducerActions first = Send("a", {{"d", "x", {{3, 4}}}}, Rank(2, 0));
  const ProducerActions second = Send("b", {{"d", "x", {{3, 4}}}}, Rank(2, 1));
  const Reply failed = OnlyReply(WriteFailed(first.writes[0], true));
  EXPECT_THAT(failed.err_requests, ElementsAre("d"));
  EXPECT_THAT(failed.err_message, Optional(HasSubstr("the peer is gone")));
  EXPECT_EQ(OnlyReply(Wrote(second.writes[0])), Finished({"d"}));
  EXPECT_EQ(producer_.TakeStats().failed_transfers, 1);
  const ProducerActions retry = Send("c", {{"d", "x", {{3, 4}}}}, Rank(2, 0));
  EXPECT_THAT(Wrote(retry.writes[0]).finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, SameConsumerTwiceCountsOnceWhateverItsAddressEdge11) {
  Prefill("x", "p");
  Wrote(Send("a", {{"d", "x", {{3, 4}}}}, Rank(2, 0)).writes[0]);
  Pull restarted = PullOf({{"d", "x", {{3, 4}}}}, Rank(2, 0));
  restarted.remote_port = 2;
  EXPECT_THAT(Wrote(SendPull("b", restarted).writes[0]).finished_requests, IsEmpty());
  EXPECT_THAT(Wrote(Send("c", {{"d", "x", {{3, 4}}}}, Rank(2, 1)).writes[0]).finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, CopyOfAMessageIsDroppedEvenAfterItsAnswerEdge11) {
  Prefill("x", "p");
  const Pull pull = PullOf({{"d", "x", {{3, 4}}}}, Rank(2, 0));
  const ProducerActions first = SendPull("a", pull);
  EXPECT_THAT(SendPull("a", pull).writes, IsEmpty());
  Wrote(first.writes[0]);
  const ProducerActions copy = SendPull("a", pull);
  EXPECT_THAT(copy.writes, IsEmpty());
  EXPECT_THAT(copy.replies, IsEmpty());
  EXPECT_EQ(producer_.TakeStats().repeated_messages, 2);
}

TEST_F(ProducerTest, SecondRequestWithATransferIdIsGivenBackWhenItFinishesEdge12) {
  Announce("x", "p");
  EXPECT_THAT(Announce("x", "child").warnings, ElementsAre(HasSubstr("request p's")));
  EXPECT_THAT(Finish("x", "p").finished_requests, IsEmpty());
  EXPECT_THAT(Finish("x", "child").finished_requests, ElementsAre("child"));
}

TEST_F(ProducerTest, TwoRequestsOfOnePullMayNameTheSameTransferEdge12) {
  Prefill("x", "p");
  const ProducerActions pulled = Send("a", {{"d1", "x", {{3, 4}}}, {"d2", "x", {{5, 6}}}});
  const ProducerActions wrote = Wrote(pulled.writes[0]);
  EXPECT_EQ(OnlyReply(wrote), Finished({"d1", "d2"}));
  EXPECT_THAT(wrote.finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, PrefillWithoutBlocksIsReadyEdge13) {
  Announce("x", "p");
  Send("a", {{"d1", "x", {{}}}});
  const ProducerActions finished = Finish("x", "p", {{}});
  EXPECT_THAT(finished.writes, IsEmpty());
  EXPECT_EQ(OnlyReply(finished), Finished({"d1"}));
  EXPECT_THAT(finished.finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, ReleaseOnlyPullWaitsWithoutAWriteAndFreesAtOnceEdge19) {
  Announce("x", "p");
  EXPECT_THAT(Send("a", {{"d1", "x", {}}}).replies, IsEmpty());
  const ProducerActions finished = Finish("x", "p");
  EXPECT_THAT(finished.writes, IsEmpty());
  EXPECT_THAT(finished.finished_requests, ElementsAre("p"));
  EXPECT_EQ(OnlyReply(finished), Finished({"d1"}));
}

TEST_F(ProducerTest, ReleaseOnlyPullNeedsNoLayoutEdge19) {
  Prefill("x", "p");
  Pull pull = PullOf({{"d1", "x", {}}});
  pull.registered_layer_names[0] = "another";
  EXPECT_THAT(SendPull("a", pull).finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, ThousandsOfWaitingPullsDoNotHoldUpAReadyOneEdge20) {
  for (int i = 0; i < 3000; ++i) Send("w" + std::to_string(i), {{"d", "x" + std::to_string(i), {{3}}}});
  Prefill("ready", "p");
  EXPECT_THAT(Send("a", {{"d", "ready", {{3}}}}).writes, SizeIs(1));
  EXPECT_THAT(Renew({"ready"}).replies, SizeIs(1));
}

TEST_F(ProducerTest, UnsettledFailureIsToldWhenNothingCanLandAnyMoreEdge22) {
  Prefill("x", "p");
  const ProducerActions pulled = Send("a", {{"d", "x", {{3, 4}}}});
  EXPECT_THAT(WriteFailed(pulled.writes[0], false).replies, IsEmpty());
  clock_.Advance(absl::Seconds(59));
  const ProducerActions early = producer_.Scan(now());
  EXPECT_THAT(early.replies, IsEmpty());
  EXPECT_THAT(early.finished_requests, IsEmpty());
  clock_.Advance(absl::Seconds(1));
  const ProducerActions settled = producer_.Scan(now());
  EXPECT_THAT(OnlyReply(settled).err_requests, ElementsAre("d"));
  EXPECT_THAT(settled.finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, NoWriteStartsAfterDHasStoppedToWaitEdge22) {
  Announce("x", "p");
  Pull pull = PullOf({{"d", "x", {{3, 4}}}});
  pull.answer_within = 10;
  SendPull("a", pull);
  clock_.Advance(absl::Seconds(10));
  const ProducerActions finished = Finish("x", "p");
  EXPECT_THAT(finished.writes, IsEmpty());
  EXPECT_THAT(OnlyReply(finished).err_requests, ElementsAre("d"));
}

TEST_F(ProducerTest, WriteEndsBeforeDHasStoppedToWaitEdge22) {
  Prefill("x", "p");
  Pull pull = PullOf({{"d", "x", {{3, 4}}}});
  pull.answer_within = 10;
  EXPECT_EQ(SendPull("a", pull).writes[0].deadline, now() + absl::Seconds(10));
}

TEST_F(ProducerTest, WrongPairingAndSizesThatDoNotDivideFailTheMessageEdge25) {
  producer_ = Make(Rank(2, 0));
  Prefill("x", "p");
  const Reply wrong = OnlyReply(Send("a", {{"d", "x", {{3}}}}, Rank(2, 1)));
  EXPECT_EQ(wrong.status, ReplyStatus::kError);
  EXPECT_THAT(wrong.err_message, Optional(HasSubstr("does not pair")));
  Pull three = PullOf({{"d", "x", {{3}}}});
  three.remote_tp_size = 3;
  EXPECT_THAT(OnlyReply(SendPull("b", three)).err_message, Optional(HasSubstr("do not divide")));
  EXPECT_EQ(producer_.TakeStats().refused_pulls, 2);
}

TEST_F(ProducerTest, AnythingMalformedIsAnErrorAndTheListenerLivesEdge28) {
  Prefill("x", "p");
  const std::string whole = *EncodePull(PullOf({{"d", "x", {{3, 4}}}}));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(OnlyReply(producer_.OnMessage("a", std::string_view(whole).substr(0, length), now())).status,
              ReplyStatus::kError);
  }
  EXPECT_EQ(OnlyReply(producer_.OnMessage("a", "\xff\xff", now())).status, ReplyStatus::kError);
  EXPECT_EQ(producer_.TakeStats().malformed_messages, static_cast<int64_t>(whole.size()) + 1);
  EXPECT_THAT(Send("a", {{"d", "x", {{3, 4}}}}).writes, SizeIs(1));
}

TEST_F(ProducerTest, LayersThatDoNotMatchFailTheMessageAndThePlanIsMadeOnceEdge30) {
  Prefill("x", "p");
  Pull pull = PullOf({{"d", "x", {{3, 4}}}});
  pull.registered_layer_names[1] = "another";
  for (const char* peer : {"a", "b"}) {
    const Reply reply = OnlyReply(SendPull(peer, pull));
    EXPECT_EQ(reply.status, ReplyStatus::kError);
    EXPECT_THAT(reply.err_message, Optional(HasSubstr("layer.1")));
  }
  EXPECT_THAT(Send("c", {{"d", "x", {{3, 4}}}}).writes, SizeIs(1));
}

TEST_F(ProducerTest, RenewalExtendsAndTellsWhatIsNotHeldEdge34) {
  Prefill("x", "p");
  clock_.Advance(absl::Seconds(25));
  const Reply reply = OnlyReply(Renew({"x", "unknown"}, kLease));
  EXPECT_EQ(reply.status, ReplyStatus::kFinish);
  EXPECT_THAT(reply.unknown_transfer_ids, ElementsAre("unknown"));
  clock_.Advance(absl::Seconds(19));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, IsEmpty());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(producer_.Scan(now()).finished_requests, ElementsAre("p"));
  EXPECT_THAT(OnlyReply(Renew({"x"})).unknown_transfer_ids, ElementsAre("x"));
  EXPECT_EQ(producer_.num_transfers(), 0u);
}

TEST_F(ProducerTest, RenewalMakesNoPlaceholderEdge35) {
  Abort("aborted", "p");
  EXPECT_THAT(OnlyReply(Renew({"x", "aborted"})).unknown_transfer_ids, ElementsAre("x", "aborted"));
  EXPECT_EQ(producer_.num_transfers(), 0u);
  EXPECT_THAT(OnlyReply(Send("a", {{"d", "aborted", {{3}}}})).err_requests, ElementsAre("d"));
}

TEST_F(ProducerTest, EmptyRenewalIsFinishedAndABrokenOneIsAnError) {
  EXPECT_EQ(OnlyReply(Renew({})), Reply());
  EXPECT_EQ(OnlyReply(Renew({}, kLease)), Reply());
  EXPECT_EQ(OnlyReply(producer_.OnMessage("a", "\x81\xa1z\xc0", now())).status, ReplyStatus::kError);
  const std::string whole = *EncodeRenewal({{"x", "y"}, kLease});
  EXPECT_EQ(OnlyReply(producer_.OnMessage("a", whole.substr(0, whole.size() - 1), now())).status, ReplyStatus::kError);
}

TEST_F(ProducerTest, RenewalIsRefusedWithTheLeaseOffEdge38) {
  producer_ = Make(Rank(1, 0), std::nullopt);
  const Reply reply = OnlyReply(Renew({"x"}, kLease));
  EXPECT_EQ(reply.status, ReplyStatus::kError);
  EXPECT_THAT(reply.err_message, Optional(HasSubstr("kv_lease_duration")));
}

TEST_F(ProducerTest, AnnouncingAgainForgetsTheEndEdge39) {
  Abort("x", "p");
  Announce("x", "q");
  EXPECT_THAT(Send("a", {{"d", "x", {{3, 4}}}}).replies, IsEmpty());
  EXPECT_THAT(Finish("x", "q").writes, SizeIs(1));
}

TEST_F(ProducerTest, OtherLeaseFailsTheMessageWithBothValues) {
  Prefill("x", "p");
  for (const std::optional<double> lease : {std::optional<double>(), std::optional<double>(7)}) {
    Pull pull = PullOf({{"d", "x", {{3, 4}}}});
    pull.kv_lease_duration = lease;
    const ProducerActions actions = SendPull("a", pull);
    const Reply reply = OnlyReply(actions);
    EXPECT_EQ(reply.status, ReplyStatus::kError);
    EXPECT_EQ(reply.err_message, Message(CheckLeaseAgreement(kLease, lease)));
    ASSERT_THAT(actions.mismatches, SizeIs(1));
    EXPECT_EQ(actions.mismatches[0].peer, "d:1");
    EXPECT_EQ(actions.mismatches[0].decode_seconds, lease);
  }
  EXPECT_EQ(OnlyReply(Renew({"x"}, 7)).err_message, Message(CheckLeaseAgreement(kLease, 7)));
  EXPECT_EQ(producer_.TakeStats().lease_mismatches, 3);
}

TEST_F(ProducerTest, ReleaseWithAnotherLeaseIsNotedAndReleases) {
  Prefill("x", "p");
  Pull pull = PullOf({{"d", "x", {}}, {"e", "later", {}}});
  pull.kv_lease_duration = 7;
  const ProducerActions actions = SendPull("a", pull);
  EXPECT_THAT(actions.finished_requests, ElementsAre("p"));
  EXPECT_THAT(OnlyReply(actions).ok_requests, ElementsAre("d"));
  ASSERT_THAT(actions.mismatches, SizeIs(1));
  EXPECT_THAT(actions.mismatches[0].transfer_ids, ElementsAre("x", "later"));
  EXPECT_THAT(actions.warnings, ElementsAre(HasSubstr(std::string(Message(CheckLeaseAgreement(kLease, 7))))));
  EXPECT_EQ(producer_.TakeStats().lease_mismatches, 1);
  // A prefill that ends after D's word is held for nobody either.
  Announce("later", "q");
  EXPECT_THAT(Finish("later", "q").finished_requests, ElementsAre("q"));
}

TEST_F(ProducerTest, LeaseThatIsNoWholeNumberOfNanosecondsAgreesWithItself) {
  producer_ = Make(Rank(1, 0), 1.0 / 3);
  Prefill("x", "p");
  Pull pull = PullOf({{"d", "x", {{3, 4}}}});
  pull.kv_lease_duration = 1.0 / 3;
  EXPECT_THAT(SendPull("a", pull).writes, SizeIs(1));
}

TEST_F(ProducerTest, RankThatNeedNotSendAcknowledges) {
  // P has more ranks than heads, so the second of each pair holds what the first sends.
  ProducerOptions options;
  options.handoff.lease = absl::Seconds(kLease);
  KvTraits traits = TinyTraits();
  traits.is_mla = true;
  const auto layout = [](WorkerRank rank, uint64_t base) {
    KvLayout whole = TinyLayout(Rank(1, 0), base, kBlocks);
    whole.rank = rank;
    return whole;
  };
  producer_ = *Producer::Create(options, layout(Rank(2, 1), kPrefillBase), traits);
  Prefill("x", "p");
  const ProducerActions pulled = Send("a", {{"d", "x", {{3, 4}}}});
  EXPECT_THAT(pulled.writes, IsEmpty());
  EXPECT_EQ(OnlyReply(pulled), Finished({"d"}));
  EXPECT_THAT(pulled.finished_requests, ElementsAre("p"));
}

TEST_F(ProducerTest, WritesAreCutAtTheirMaximumAndOneAboveItIsRefused) {
  ProducerOptions options;
  options.handoff.lease = absl::Seconds(kLease);
  options.write_pieces_max = 4;
  producer_ = Make(options);
  Prefill("x", "p");
  Prefill("y", "q");
  Announce("z", "r");
  Finish("z", "r", {{1, 3, 5}});
  // Two blocks that are no neighbours are two pieces a layer.
  const ProducerActions pulled = Send("a", {{"d1", "x", {{3, 5}}}, {"d2", "y", {{7, 9}}}, {"d3", "z", {{8, 11, 13}}}});
  ASSERT_THAT(pulled.writes, SizeIs(2));
  EXPECT_THAT(pulled.writes[0].pieces, SizeIs(4));
  EXPECT_THAT(OnlyReply(pulled).err_requests, ElementsAre("d3"));
  Wrote(pulled.writes[1]);
  EXPECT_EQ(OnlyReply(Wrote(pulled.writes[0])), Finished({"d1"}));
}

TEST_F(ProducerTest, LimitsAreAnswers) {
  ProducerOptions options;
  options.handoff.lease = absl::Seconds(kLease);
  options.handoff.waiters_max = 1;
  options.pulls_max = 1;
  producer_ = Make(options);
  EXPECT_THAT(OnlyReply(Send("a", {{"d1", "x", {{3}}}, {"d2", "y", {{4}}}})).err_requests, ElementsAre("d2"));
  const Reply full = OnlyReply(Send("b", {{"d3", "z", {{3}}}}));
  EXPECT_EQ(full.status, ReplyStatus::kError);
  EXPECT_THAT(full.err_message, Optional(HasSubstr("maximum")));
}

TEST_F(ProducerTest, OptionsAndLayoutAreChecked) {
  ProducerOptions options;
  options.layouts_max = 0;
  EXPECT_FALSE(Producer::Create(options, TinyLayout(Rank(1, 0), 0, 1), TinyTraits()).ok());
  EXPECT_FALSE(Producer::Create(ProducerOptions(), KvLayout(), TinyTraits()).ok());
  ProducerOptions endless;
  endless.late_write_max = absl::InfiniteDuration();
  EXPECT_FALSE(Producer::Create(endless, TinyLayout(Rank(1, 0), 0, 1), TinyTraits()).ok());
}

TEST_F(ProducerTest, ResultOfAnUnknownWriteIsIgnored) {
  EXPECT_THAT(producer_.OnWriteDone(WriteId(77), WriteResult(), now()).replies, IsEmpty());
}

TEST_F(ProducerTest, ScansComeOftenEnoughForTheLease) {
  producer_.Scan(now());
  EXPECT_EQ(producer_.NextScan(), now() + absl::Seconds(1));
  producer_ = Make(Rank(1, 0), 0.3);
  producer_.Scan(now());
  EXPECT_EQ(producer_.NextScan(), now() + absl::Milliseconds(50));
}

TEST_F(ProducerTest, MessagesOfOtherImplementationsGetAnAnswerEach) {
  for (const std::string& message : AllGoldenMessages()) {
    EXPECT_LE(producer_.OnMessage("a", message, now()).replies.size(), 1u);
  }
}

}  // namespace
}  // namespace tenure::pd
