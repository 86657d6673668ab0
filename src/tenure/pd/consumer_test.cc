// What a decode worker does with answers and their absence, at each edge of pd_protocol spec §9 that is its own.
#include "tenure/pd/consumer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/reply.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double kLease = 30;
constexpr absl::Duration kRemaining = absl::Seconds(540);
constexpr absl::Duration kLateWrite = absl::Seconds(60);

using Answer = std::map<int64_t, RegisteredEngine>;

RegisteredEngine EngineOf(const std::string& id, int64_t tp_size = 1, int64_t pp_size = 1) {
  RegisteredEngine engine;
  engine.engine_id = id;
  engine.kv_lease_duration = kLease;
  engine.incarnation = 1;
  engine.tp_size = tp_size;
  engine.pp_size = pp_size;
  for (int64_t tp = 0; tp < tp_size; ++tp) {
    for (int64_t pp = 0; pp < pp_size; ++pp) engine.addresses[tp][pp] = fmt::format("tcp://{}:{}{}", id, tp, pp);
  }
  return engine;
}

class ConsumerTest : public ::testing::Test {
 protected:
  static ConsumerOptions Options(WorkerRank rank = {}) {
    ConsumerOptions options;
    options.worker = TinyPull(TinyLayout(rank, 1 << 20, 16), "d", kLease);
    options.look_interval = absl::Hours(1);  // Past all deadlines.
    return options;
  }
  static Consumer Make(const ConsumerOptions& options) {
    auto consumer = Consumer::Create(options);
    TENURE_CHECK(consumer.ok());
    return *std::move(consumer);
  }

  MonotonicTime now() const { return clock_.Now(); }
  static PullOrder Order(const std::string& id, const std::string& engine = "e",
                         absl::Duration remaining = kRemaining) {
    return {id, "x" + id, engine, "http://b", {{1, 2}}, remaining};
  }
  static PullOrder ReleaseOf(const std::string& id) {
    PullOrder order = Order(id);
    order.blocks.clear();
    return order;
  }
  ConsumerActions Start(std::vector<PullOrder> orders) { return consumer_.StartPulls(orders, now()); }
  ConsumerActions Answered(Answer answer, const std::string& address = "http://b") {
    return consumer_.OnQueryAnswer(address, answer, now());
  }
  // The engine is known afterwards; returns the messages of the first pulls.
  std::vector<ChannelMessage> StartKnown(std::vector<PullOrder> orders, RegisteredEngine engine = EngineOf("e")) {
    Start(std::move(orders));
    return Answered({{0, std::move(engine)}}).sends;
  }
  ConsumerActions Replied(const ChannelMessage& message, const Reply& reply) {
    return consumer_.OnReply(message.channel, *EncodeReply(reply), now());
  }
  void ExpectIdle() {
    EXPECT_EQ(consumer_.num_requests(), 0u);
    EXPECT_EQ(consumer_.num_channels(), 0u);
    EXPECT_EQ(consumer_.NextTick(), MonotonicTime::Max());
  }

  ManualClock clock_{MonotonicTime::FromNanoseconds(1'000'000'000)};
  Consumer consumer_ = Make(Options());
};

Reply MakeReply(ReplyStatus status, std::vector<std::string> ok, std::vector<std::string> err = {},
                std::optional<std::string> message = std::nullopt) {
  Reply reply;
  reply.status = status;
  reply.ok_requests = std::move(ok);
  reply.err_requests = std::move(err);
  reply.err_message = std::move(message);
  return reply;
}
Reply Finish(std::vector<std::string> ok, std::vector<std::string> err = {}) {
  return MakeReply(ReplyStatus::kFinish, std::move(ok), std::move(err), "why");
}
Reply Continue(std::vector<std::string> ok, std::vector<std::string> err = {}) {
  return MakeReply(ReplyStatus::kContinue, std::move(ok), std::move(err), "why");
}
Reply Error() { return MakeReply(ReplyStatus::kError, {}, {}, "all of it"); }

std::vector<std::string> IdsOf(const std::vector<FailedPull>& failed) {
  std::vector<std::string> ids;
  for (const FailedPull& pull : failed) ids.push_back(pull.request_id);
  return ids;
}
std::vector<std::string> IdsOf(const std::vector<FailingPull>& failing) {
  std::vector<std::string> ids;
  for (const FailingPull& pull : failing) ids.push_back(pull.request_id);
  return ids;
}

TEST_F(ConsumerTest, OneMessageCarriesAllPullsOfAnEngineAndSaysWhatPNeeds) {
  const ConsumerActions asked = Start({Order("a"), Order("b")});
  EXPECT_THAT(asked.queries, ElementsAre("http://b"));
  EXPECT_THAT(asked.sends, IsEmpty());
  const ConsumerActions sent = Answered({{0, EngineOf("e")}});
  ASSERT_THAT(sent.sends, SizeIs(1));
  EXPECT_EQ(sent.sends[0].address, "tcp://e:00");
  EXPECT_EQ(sent.sends[0].deadline, now() + kRemaining);
  const Pull pull = *DecodePull(sent.sends[0].bytes);
  ASSERT_THAT(pull.requests, SizeIs(2));
  EXPECT_EQ(pull.requests[1], (PullRequest{"b", "xb", {{1, 2}}}));
  EXPECT_EQ(pull.kv_lease_duration, kLease);
  EXPECT_EQ(pull.answer_within, absl::ToDoubleSeconds(kRemaining));
  EXPECT_EQ(pull.kv_caches_base_addr, Options().worker.kv_caches_base_addr);

  const ConsumerActions first = Replied(sent.sends[0], Continue({"a"}));
  EXPECT_THAT(first.received, ElementsAre("a"));
  EXPECT_THAT(first.closes, IsEmpty());
  const ConsumerActions second = Replied(sent.sends[0], Finish({"b"}));
  EXPECT_THAT(second.received, ElementsAre("b"));
  EXPECT_THAT(second.closes, ElementsAre(sent.sends[0].channel));
  ExpectIdle();
  EXPECT_EQ(consumer_.TakeStats().received, 2);
}

TEST_F(ConsumerTest, KnownEngineIsNotAskedForAgain) {
  Replied(StartKnown({Order("a")})[0], Finish({"a"}));
  const ConsumerActions again = Start({Order("a")});
  EXPECT_THAT(again.queries, IsEmpty());
  EXPECT_THAT(again.sends, SizeIs(1));
}

TEST_F(ConsumerTest, FailureOfOneWorkerIsHeldUntilAllHaveSettledEdge15) {
  const auto sends = StartKnown({Order("a")}, EngineOf("e", 2));
  ASSERT_THAT(sends, SizeIs(2));
  const ConsumerActions first = Replied(sends[0], Finish({}, {"a"}));
  EXPECT_THAT(first.failed, IsEmpty());
  EXPECT_THAT(IdsOf(first.failing), ElementsAre("a"));
  const ConsumerActions second = Replied(sends[1], Finish({"a"}));
  ASSERT_THAT(IdsOf(second.failed), ElementsAre("a"));
  EXPECT_EQ(second.failed[0].error, "why");
  EXPECT_EQ(second.failed[0].blocks, Order("a").blocks);
  EXPECT_THAT(second.received, IsEmpty());
  EXPECT_THAT(second.failing, IsEmpty());
  ExpectIdle();
}

TEST_F(ConsumerTest, WorkerThatNeverSettlesHoldsTheBlocksUntilItsWriteCannotLandEdge15) {
  const auto sends = StartKnown({Order("a")}, EngineOf("e", 2));
  Replied(sends[0], Finish({"a"}));
  clock_.AdvanceTo(consumer_.NextTick());
  EXPECT_EQ(now(), sends[0].deadline);
  const ConsumerActions late = consumer_.Tick(now());
  EXPECT_THAT(IdsOf(late.failing), ElementsAre("a"));
  EXPECT_THAT(late.failed, IsEmpty());
  EXPECT_THAT(late.closes, ElementsAre(sends[1].channel));
  clock_.AdvanceTo(consumer_.NextTick());
  EXPECT_EQ(now(), sends[0].deadline + kLateWrite);
  const ConsumerActions safe = consumer_.Tick(now());
  EXPECT_THAT(IdsOf(safe.failed), ElementsAre("a"));
  EXPECT_THAT(safe.failing, IsEmpty());
  ExpectIdle();
}

TEST_F(ConsumerTest, ErrorAfterAContinueFailsOnlyWhatIsOpenEdge16) {
  const auto sends = StartKnown({Order("a"), Order("b"), Order("c")});
  EXPECT_THAT(Replied(sends[0], Continue({"a"})).received, ElementsAre("a"));
  const ConsumerActions error = Replied(sends[0], Error());
  EXPECT_THAT(IdsOf(error.failed), ElementsAre("b", "c"));
  EXPECT_EQ(error.failed[0].error, "all of it");
  EXPECT_THAT(error.received, IsEmpty());
  ExpectIdle();
}

TEST_F(ConsumerTest, FinishWithoutAWordOnARequestFailsItAndUnknownIdsAreIgnoredEdge17) {
  const auto sends = StartKnown({Order("a"), Order("b")});
  const ConsumerActions finished = Replied(sends[0], Finish({"a", "stranger"}, {"other"}));
  EXPECT_THAT(finished.received, ElementsAre("a"));
  ASSERT_THAT(IdsOf(finished.failed), ElementsAre("b"));
  EXPECT_THAT(finished.failed[0].error, HasSubstr("without a word"));
  ExpectIdle();
}

TEST_F(ConsumerTest, OutcomeComesOnceWhateverIsSaidAgainEdge17) {
  const auto sends = StartKnown({Order("a"), Order("b")});
  EXPECT_THAT(Replied(sends[0], Continue({"a"})).received, ElementsAre("a"));
  const ConsumerActions again = Replied(sends[0], Continue({"a"}, {"a"}));
  EXPECT_THAT(again.received, IsEmpty());
  EXPECT_THAT(again.failed, IsEmpty());
  Replied(sends[0], Finish({"b"}));
  EXPECT_THAT(Replied(sends[0], Finish({"b"})).received, IsEmpty());
}

TEST_F(ConsumerTest, IdInBothListsHasFailedEdge17) {
  const ConsumerActions both = Replied(StartKnown({Order("a")})[0], Finish({"a"}, {"a"}));
  EXPECT_THAT(IdsOf(both.failed), ElementsAre("a"));
  EXPECT_THAT(both.received, IsEmpty());
}

TEST_F(ConsumerTest, ReleaseOnlyPullIsSentAndNeverReportedEdge18) {
  const auto sends = StartKnown({ReleaseOf("a")});
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_THAT(DecodePull(sends[0].bytes)->requests, ElementsAre(PullRequest{"a", "xa", {}}));
  const ConsumerActions done = Replied(sends[0], Finish({}, {"a"}));
  EXPECT_THAT(done.failed, IsEmpty());
  EXPECT_THAT(done.failing, IsEmpty());
  ExpectIdle();
  EXPECT_EQ(consumer_.TakeStats().failed_receives, 0);
}

TEST_F(ConsumerTest, ReleaseOnlyPullIsTriedForAWhileAndThenDroppedInSilenceEdge18) {
  PullOrder order = ReleaseOf("a");
  order.remaining = absl::ZeroDuration();
  const auto sends = StartKnown({order});
  ASSERT_THAT(sends, SizeIs(1));
  clock_.Advance(absl::Seconds(30));
  const ConsumerActions late = consumer_.Tick(now());
  EXPECT_THAT(late.failed, IsEmpty());
  EXPECT_THAT(late.failing, IsEmpty());
  EXPECT_THAT(late.closes, SizeIs(1));
  ExpectIdle();
}

TEST_F(ConsumerTest, ReleaseOnlyPullMayHaveTheIdOfAPullEdge18) {
  const auto sends = StartKnown({Order("a"), ReleaseOf("a")});
  ASSERT_THAT(sends, SizeIs(2));
  Replied(sends[1], Finish({"a"}));
  EXPECT_THAT(Replied(sends[0], Finish({"a"})).received, ElementsAre("a"));
  ExpectIdle();
}

TEST_F(ConsumerTest, MessageToManyMinutesOldDeadlinesHoldsTheEarlierRequestForTheLaterEdge22) {
  // P may write for as long as the message allows, which is the later request's time.
  const auto sends = StartKnown({Order("a", "e", absl::Seconds(10)), Order("b", "e", absl::Seconds(100))});
  EXPECT_EQ(DecodePull(sends[0].bytes)->answer_within, 100);
  clock_.Advance(absl::Seconds(10));
  const ConsumerActions late = consumer_.Tick(now());
  EXPECT_THAT(IdsOf(late.failing), ElementsAre("a"));
  EXPECT_THAT(late.closes, IsEmpty());
  EXPECT_THAT(Replied(sends[0], Finish({"b"})).received, ElementsAre("b"));
  EXPECT_EQ(consumer_.NextTick(), sends[0].deadline + kLateWrite);
  clock_.AdvanceTo(consumer_.NextTick());
  EXPECT_THAT(IdsOf(consumer_.Tick(now()).failed), ElementsAre("a"));
}

TEST_F(ConsumerTest, FailedWriteOfAStockPMayStillLandEdge22) {
  RegisteredEngine stock = EngineOf("e");
  stock.incarnation = stock.tp_size = stock.pp_size = std::nullopt;
  const auto sends = StartKnown({Order("a")}, stock);
  const ConsumerActions failing = Replied(sends[0], Finish({}, {"a"}));
  EXPECT_THAT(IdsOf(failing.failing), ElementsAre("a"));
  EXPECT_THAT(failing.failed, IsEmpty());
  clock_.Advance(kLateWrite);
  EXPECT_THAT(IdsOf(consumer_.Tick(now()).failed), ElementsAre("a"));
}

TEST_F(ConsumerTest, PartialTopologyIsAskedForAgainUntilItIsWholeEdge23) {
  Start({Order("a")});
  RegisteredEngine partial = EngineOf("e", 2);
  partial.addresses.erase(1);
  const ConsumerActions waits = Answered({{0, partial}});
  EXPECT_THAT(waits.failed, IsEmpty());
  EXPECT_THAT(waits.sends, IsEmpty());
  EXPECT_THAT(Start({Order("b")}).queries, IsEmpty());
  EXPECT_EQ(consumer_.NextTick(), now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(consumer_.Tick(now()).queries, ElementsAre("http://b"));
  EXPECT_THAT(consumer_.Tick(now()).queries, IsEmpty());
  const ConsumerActions sent = Answered({{0, EngineOf("e", 2)}});
  ASSERT_THAT(sent.sends, SizeIs(2));
  EXPECT_THAT(DecodePull(sent.sends[0].bytes)->requests, SizeIs(2));
}

TEST_F(ConsumerTest, PartialTopologyFailsAtTheRequestsDeadlineWithoutAHoldEdge23) {
  Start({Order("a", "e", absl::Seconds(5))});
  RegisteredEngine stock = EngineOf("e", 3);
  stock.incarnation = stock.tp_size = stock.pp_size = std::nullopt;
  stock.addresses.erase(1);  // A hole shows that someone is missing.
  Answered({{0, stock}});
  clock_.Advance(absl::Seconds(5));
  const ConsumerActions late = consumer_.Tick(now());
  ASSERT_THAT(IdsOf(late.failed), ElementsAre("a"));
  EXPECT_THAT(late.failed[0].error, HasSubstr("not all registered"));
  Answered({{0, stock}});
  ExpectIdle();
}

TEST_F(ConsumerTest, WorkerThatIsLostOrLateIsAskedForAgainEdge24) {
  const auto sends = StartKnown({Order("a")});
  const ConsumerActions lost = consumer_.OnChannelFailed(sends[0].channel, "refused", now());
  ASSERT_THAT(IdsOf(lost.failing), ElementsAre("a"));
  EXPECT_THAT(lost.failing[0].error, HasSubstr("refused"));
  EXPECT_THAT(lost.failed, IsEmpty());
  EXPECT_EQ(consumer_.NextTick(), sends[0].deadline + kLateWrite);  // The message may have arrived.
  EXPECT_THAT(Start({Order("b")}).queries, ElementsAre("http://b"));
  Answered({{0, EngineOf("e")}});
  clock_.Advance(kRemaining);
  EXPECT_THAT(IdsOf(consumer_.Tick(now()).failing), ElementsAre("b"));
  EXPECT_THAT(Start({Order("c")}).queries, ElementsAre("http://b"));
  EXPECT_EQ(consumer_.TakeStats().lost_channels, 2);
}

TEST_F(ConsumerTest, WorkerWhoseProcessHasEndedHoldsTheBlocksForALateWriteAloneEdge24) {
  ConsumerOptions options = Options();
  options.look_interval = absl::Seconds(1);
  consumer_ = Make(options);
  const auto sends = StartKnown({Order("a"), Order("b")}, EngineOf("e", 2));
  EXPECT_THAT(consumer_.OnChannelFailed(sends[0].channel, "closed", now()).looks, ElementsAre("tcp://e:00"));
  EXPECT_EQ(consumer_.NextTick(), now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(consumer_.Tick(now()).looks, ElementsAre("tcp://e:00"));  // It was still there.
  EXPECT_THAT(consumer_.OnChannelFailed(sends[1].channel, "closed", now()).looks, ElementsAre("tcp://e:10"));
  consumer_.OnWorkerGone("tcp://e:00", now());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(consumer_.Tick(now()).looks, ElementsAre("tcp://e:10"));  // Which may still write.
  consumer_.OnWorkerGone("tcp://e:10", now());
  EXPECT_EQ(consumer_.NextTick(), now() + kLateWrite);
  clock_.AdvanceTo(consumer_.NextTick());
  EXPECT_THAT(IdsOf(consumer_.Tick(now()).failed), ElementsAre("a", "b"));
  EXPECT_EQ(consumer_.TakeStats().ended_workers, 2);
  ExpectIdle();
}

TEST_F(ConsumerTest, LateEndOfAProcessHoldsNothingLongerEdge24) {
  const auto sends = StartKnown({Order("a")});
  clock_.Advance(kRemaining - absl::Seconds(1));
  consumer_.OnChannelFailed(sends[0].channel, "closed", now());
  clock_.Advance(absl::Seconds(2));
  consumer_.OnWorkerGone(sends[0].address, now());
  EXPECT_EQ(consumer_.NextTick(), sends[0].deadline + kLateWrite);
}

TEST_F(ConsumerTest, EndOfAWorkerThatWasNotLostChangesNothing) {
  const auto sends = StartKnown({Order("a")});
  for (const std::string& address : {sends[0].address, std::string("tcp://nobody:1")}) {
    EXPECT_THAT(consumer_.OnWorkerGone(address, now()).failing, IsEmpty());
  }
  EXPECT_THAT(Replied(sends[0], Finish({"a"})).received, ElementsAre("a"));
  EXPECT_EQ(consumer_.TakeStats().ended_workers, 0);
  ExpectIdle();
}

TEST_F(ConsumerTest, StockWorkerIsNotLookedForAndHoldsTheBlocksUntilTheDeadlineEdge24) {
  RegisteredEngine stock = EngineOf("e");
  stock.incarnation = stock.tp_size = stock.pp_size = std::nullopt;
  const auto sends = StartKnown({Order("a")}, stock);
  EXPECT_THAT(consumer_.OnChannelFailed(sends[0].channel, "closed", now()).looks, IsEmpty());
  consumer_.OnWorkerGone(sends[0].address, now());
  EXPECT_EQ(consumer_.NextTick(), sends[0].deadline + kLateWrite);
}

TEST_F(ConsumerTest, PullThatNeverLeftHoldsNothingAndTheNextOneAsksAgainEdge24) {
  const auto sends = StartKnown({Order("a")});
  const ConsumerActions lost = consumer_.OnNotSent(sends[0].channel, "cannot be reached", now());
  ASSERT_THAT(IdsOf(lost.failed), ElementsAre("a"));
  EXPECT_THAT(lost.failed[0].error, HasSubstr("cannot be reached"));
  EXPECT_THAT(lost.failing, IsEmpty());
  EXPECT_THAT(Start({Order("b")}).queries, ElementsAre("http://b"));
  EXPECT_EQ(consumer_.TakeStats().lost_channels, 1);
}

TEST_F(ConsumerTest, NewIncarnationReplacesTheOldAndFailsWhatItWasAskedEdge24) {
  const auto sends = StartKnown({Order("a")});
  Start({Order("b", "another")});
  RegisteredEngine started_again = EngineOf("e");
  started_again.incarnation = 2;
  started_again.addresses[0][0] = "tcp://new:1";
  const ConsumerActions learned = Answered({{0, started_again}, {1, EngineOf("another")}});
  EXPECT_THAT(IdsOf(learned.failing), ElementsAre("a"));
  EXPECT_THAT(learned.closes, ElementsAre(sends[0].channel));
  const ConsumerActions next = Start({Order("c")});
  ASSERT_THAT(next.sends, SizeIs(1));
  EXPECT_EQ(next.sends[0].address, "tcp://new:1");
}

TEST_F(ConsumerTest, EarlierIncarnationReplacesNothingEdge24) {
  RegisteredEngine second = EngineOf("e");
  second.incarnation = 2;
  StartKnown({Order("a")}, second);
  Start({Order("b", "another")});
  RegisteredEngine first = EngineOf("e");
  first.addresses[0][0] = "tcp://old:1";
  EXPECT_THAT(Answered({{0, first}, {1, EngineOf("another")}}).failing, IsEmpty());
  EXPECT_EQ(Start({Order("c")}).sends[0].address, "tcp://e:00");
}

TEST_F(ConsumerTest, EngineThatCannotBePulledFromFailsAloneEdge25) {
  consumer_ = Make(Options({2, 0, 1, 0}));
  Start({Order("a", "three"), Order("b", "two")});
  const ConsumerActions actions = Answered({{0, EngineOf("three", 3)}, {1, EngineOf("two", 2)}});
  ASSERT_THAT(IdsOf(actions.failed), ElementsAre("a"));
  EXPECT_THAT(actions.failed[0].error, HasSubstr("do not divide"));
  ASSERT_THAT(actions.sends, SizeIs(1));
  EXPECT_EQ(actions.sends[0].address, "tcp://two:00");
}

TEST_F(ConsumerTest, RanksDecideWhomToPullFromEdge25) {
  consumer_ = Make(Options({2, 1, 1, 0}));
  std::vector<std::string> addresses;
  for (const ChannelMessage& send : StartKnown({Order("a")}, EngineOf("e", 4, 2))) addresses.push_back(send.address);
  EXPECT_THAT(addresses, ElementsAre("tcp://e:20", "tcp://e:21", "tcp://e:30", "tcp://e:31"));
  consumer_ = Make(Options({2, 1, 2, 1}));
  addresses.clear();
  for (const ChannelMessage& send : StartKnown({Order("a")}, EngineOf("e", 1, 2))) addresses.push_back(send.address);
  EXPECT_THAT(addresses, ElementsAre("tcp://e:01"));
}

TEST_F(ConsumerTest, EachBootstrapAddressOfAnEngineIsAskedEdge26) {
  PullOrder other = Order("b");
  other.bootstrap_address = "http://c";
  EXPECT_THAT(Start({Order("a"), other}).queries, ElementsAre("http://b", "http://c"));
  EXPECT_THAT(IdsOf(Answered({}).failed), ElementsAre("a"));
  const ConsumerActions sent = Answered({{0, EngineOf("e")}}, "http://c");
  ASSERT_THAT(sent.sends, SizeIs(1));
  EXPECT_THAT(DecodePull(sent.sends[0].bytes)->requests, SizeIs(1));
}

TEST_F(ConsumerTest, EngineThatIsNotThereAndAServerThatDoesNotAnswerFailTheirPulls) {
  Start({Order("a")});
  const ConsumerActions unknown = Answered({{0, EngineOf("another")}});
  ASSERT_THAT(IdsOf(unknown.failed), ElementsAre("a"));
  EXPECT_THAT(unknown.failed[0].error, HasSubstr("does not know engine e"));
  EXPECT_THAT(Start({Order("b")}).queries, SizeIs(1));
  const ConsumerActions down = consumer_.OnQueryAnswer("http://b", Unavailable("connection refused"), now());
  ASSERT_THAT(IdsOf(down.failed), ElementsAre("b"));
  EXPECT_THAT(down.failed[0].error, HasSubstr("connection refused"));
  ExpectIdle();
}

TEST_F(ConsumerTest, OtherLeaseOfPFailsThePullsAtOnceWithBothValuesAndTellsP) {
  for (const std::optional<double> lease : {std::optional<double>(), std::optional<double>(7)}) {
    RegisteredEngine engine = EngineOf("e", 2);
    engine.kv_lease_duration = lease;
    Start({Order("a"), ReleaseOf("r")});
    const ConsumerActions actions = Answered({{0, engine}});
    ASSERT_THAT(IdsOf(actions.failed), ElementsAre("a"));
    EXPECT_EQ(actions.failed[0].error, Message(CheckLeaseAgreement(lease, kLease)));
    EXPECT_THAT(actions.failed[0].blocks, Not(IsEmpty()));
    ASSERT_THAT(actions.mismatches, SizeIs(1));
    EXPECT_EQ(actions.mismatches[0].prefill_seconds, lease);
    EXPECT_THAT(actions.mismatches[0].transfer_ids, ElementsAre("xa", "xr"));
    EXPECT_THAT(actions.warnings, ElementsAre(HasSubstr(actions.failed[0].error)));
    // Every paired worker of P gets the lease of D, and nothing to write.
    ASSERT_THAT(actions.sends, SizeIs(2));
    for (const ChannelMessage& send : actions.sends) {
      const Pull pull = *DecodePull(send.bytes);
      EXPECT_EQ(pull.kv_lease_duration, kLease);
      ASSERT_THAT(pull.requests, SizeIs(2));
      for (const PullRequest& request : pull.requests) EXPECT_THAT(request.blocks, IsEmpty());
    }
    // Whatever P says of them, no request hears of it again.
    const ConsumerActions refused = Replied(actions.sends[0], Error());
    EXPECT_THAT(refused.failed, IsEmpty());
    EXPECT_THAT(refused.failing, IsEmpty());
    EXPECT_THAT(Replied(actions.sends[1], Finish({"a", "r"})).received, IsEmpty());
    ExpectIdle();
  }
  EXPECT_THAT(StartKnown({Order("b")}), SizeIs(1));  // P has been corrected.
}

TEST_F(ConsumerTest, RequestThatFailedForItsLeaseMayComeAgainWhilePIsTold) {
  RegisteredEngine engine = EngineOf("e");
  engine.kv_lease_duration = 7;
  Start({Order("a")});
  const ConsumerActions first = Answered({{0, engine}});
  ASSERT_THAT(first.sends, SizeIs(1));
  // The setting of P is asked for anew, and the first message goes on.
  EXPECT_THAT(Start({Order("a")}).queries, SizeIs(1));
  const ConsumerActions second = Answered({{0, EngineOf("e")}});
  ASSERT_THAT(second.sends, SizeIs(1));
  EXPECT_THAT(second.closes, IsEmpty());
  EXPECT_THAT(Replied(first.sends[0], Finish({"a"})).received, IsEmpty());
  EXPECT_THAT(Replied(second.sends[0], Finish({"a"})).received, ElementsAre("a"));
  ExpectIdle();
}

TEST_F(ConsumerTest, SilenceOnTheWordOfAnotherLeaseEndsInTime) {
  RegisteredEngine engine = EngineOf("e");
  engine.kv_lease_duration = 7;
  Start({Order("a", "e", absl::Seconds(2))});
  const ConsumerActions told = Answered({{0, engine}});
  ASSERT_THAT(told.sends, SizeIs(1));
  EXPECT_EQ(told.sends[0].deadline, now() + Options().release_timeout_min);
  clock_.Advance(Options().release_timeout_min);
  const ConsumerActions over = consumer_.Tick(now());
  EXPECT_THAT(over.closes, ElementsAre(told.sends[0].channel));
  EXPECT_THAT(over.failed, IsEmpty());
  ExpectIdle();
}

TEST_F(ConsumerTest, MalformedReplyIsNoAnswerAndTheNeighboursLive) {
  const auto sends = StartKnown({Order("a")}, EngineOf("e", 2));
  const ConsumerActions broken = consumer_.OnReply(sends[0].channel, "\xc1", now());
  EXPECT_THAT(broken.closes, ElementsAre(sends[0].channel));
  EXPECT_THAT(IdsOf(broken.failing), ElementsAre("a"));
  Replied(sends[1], Finish({"a"}));
  EXPECT_EQ(consumer_.NextTick(), sends[0].deadline + kLateWrite);
  EXPECT_EQ(consumer_.TakeStats().malformed_replies, 1);
}

TEST_F(ConsumerTest, DeadlineThatHasPassedFailsWithoutAMessage) {
  const ConsumerActions actions = Start({Order("a", "e", absl::ZeroDuration())});
  EXPECT_THAT(IdsOf(actions.failed), ElementsAre("a"));
  EXPECT_THAT(actions.queries, IsEmpty());
  ExpectIdle();
}

TEST_F(ConsumerTest, SecondOrderOfARunningPullIsDropped) {
  const auto sends = StartKnown({Order("a")});
  const ConsumerActions again = Start({Order("a")});
  EXPECT_THAT(again.sends, IsEmpty());
  EXPECT_THAT(again.warnings, SizeIs(1));
  EXPECT_THAT(Replied(sends[0], Finish({"a"})).received, ElementsAre("a"));
}

TEST_F(ConsumerTest, LimitsAndBadIdsAreFailuresOfTheirRequests) {
  ConsumerOptions options = Options();
  options.requests_max = 1;
  consumer_ = Make(options);
  const ConsumerActions full = Start({Order("a"), Order("b"), Order("\xff")});
  EXPECT_THAT(IdsOf(full.failed), ElementsAre("b", "\xff"));
  EXPECT_THAT(full.failed[0].error, HasSubstr("maximum"));
}

TEST_F(ConsumerTest, OptionsAreChecked) {
  ConsumerOptions options = Options();
  options.worker.requests.push_back({"a", "x", {}});
  EXPECT_FALSE(Consumer::Create(options).ok());
  options = Options();
  options.worker.remote_tp_rank = 1;
  EXPECT_FALSE(Consumer::Create(options).ok());
  options = Options();
  options.late_write_max = absl::ZeroDuration();
  EXPECT_FALSE(Consumer::Create(options).ok());
}

TEST_F(ConsumerTest, ForgottenEnginesMakeRoomInOrderOfUse) {
  ConsumerOptions options = Options();
  options.engines_max = 2;
  consumer_ = Make(options);
  StartKnown({Order("a")});
  Start({Order("b", "f")});
  Answered({{0, EngineOf("f")}});
  Start({Order("c", "e")});  // Used again.
  Start({Order("d", "g")});
  Answered({{0, EngineOf("g")}});
  EXPECT_THAT(Start({Order("h", "e")}).queries, IsEmpty());
  EXPECT_THAT(Start({Order("i", "f")}).queries, SizeIs(1));
}

}  // namespace
}  // namespace tenure::pd
