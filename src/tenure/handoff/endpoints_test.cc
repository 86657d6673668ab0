// Prefill and decode endpoints against each other over loopback: the whole path of a transfer but the engines.
#include <algorithm>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/handoff/channels.h"
#include "tenure/handoff/handoff_rig_testing.h"
#include "tenure/handoff/recorder_testing.h"
#include "tenure/handoff/renewal_sender.h"
#include "tenure/handoff/zmq_socket.h"
#include "tenure/http/http_client.h"
#include "tenure/pd/reply.h"

namespace tenure::handoff {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(30);

// Virtual time: what a loaded machine takes does not count, and nothing expires unless a test lets it.
class EndpointsTest : public ::testing::Test {
 protected:
  std::unique_ptr<TestPrefill> StartPrefill(const TestPrefillOptions& options = {}) {
    return std::make_unique<TestPrefill>(*bootstrap_, network_, clock_, options);
  }
  std::unique_ptr<TestDecode> StartDecode(const TestDecodeOptions& options = {}) {
    return std::make_unique<TestDecode>(network_, clock_, decode_board_, options);
  }
  std::string url() const { return BootstrapUrl(*bootstrap_); }
  // Waits until a pull of `d` has reached `p`.
  static void WaitForPulls(TestPrefill& p, int64_t count) {
    int64_t pulls = 0;
    EXPECT_TRUE(WaitUntil([&] { return (pulls += p.endpoint().TakeStats().producer.pulls) >= count; }));
  }

  ManualClock clock_;
  transfer::MemoryNetwork network_;
  const std::shared_ptr<MismatchBoard> decode_board_ = std::make_shared<MismatchBoard>();
  std::unique_ptr<BootstrapServer> bootstrap_ = StartTestBootstrap();
};

TEST_F(EndpointsTest, ThousandsOfRequestsArriveWithTheirBytes) {
  constexpr int64_t kStep = 50;
  const int64_t requests = RandomCases(4'000);
  const auto p = StartPrefill({.lease = kLease});
  const auto d = StartDecode({.lease = kLease});
  Random random(20261130);
  std::vector<int64_t> ids(requests);
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [](int64_t id) { return static_cast<uint8_t>(id * 7 + 1); };
  for (int64_t first = 0; first < requests; first += kStep) {
    std::vector<pd::PullOrder> orders;
    std::vector<int64_t> step(ids.begin() + first, ids.begin() + first + kStep);
    for (const int64_t id : step) {
      const std::string name = std::to_string(id);
      // Block n of P goes to another block of D.
      p->memory().Fill(id % 4000 + 1, value(id));
      p->Announce(name);
      orders.push_back(TestDecode::Order(name, url(), {4000 - id % 4000}));
    }
    std::shuffle(step.begin(), step.end(), random);
    // Half of the prefills end before the pull, half after it.
    const auto middle = step.begin() + kStep / 2;
    for (auto id = step.begin(); id != middle; ++id) p->Finish(std::to_string(*id), {*id % 4000 + 1});
    d->Pull(std::move(orders));
    for (auto id = middle; id != step.end(); ++id) p->Finish(std::to_string(*id), {*id % 4000 + 1});
    const TestDecode::Ended ended = d->WaitForEnded(first + kStep);
    ASSERT_EQ(static_cast<int64_t>(ended.received.size()), first + kStep) << ended.failed.size() << " failed";
    for (const int64_t id : step) ASSERT_TRUE(d->memory().Holds(4000 - id % 4000, value(id))) << id;
  }
  std::vector<std::string> finished = p->WaitForFinished(requests);
  std::sort(finished.begin(), finished.end());
  EXPECT_EQ(std::unique(finished.begin(), finished.end()), finished.end());
  EXPECT_EQ(static_cast<int64_t>(finished.size()), requests);
  const PrefillEndpointStats stats = p->endpoint().TakeStats();
  EXPECT_EQ(stats.router.malformed_messages, 0);
  EXPECT_EQ(stats.router.dropped_replies, 0);
}

TEST_F(EndpointsTest, ALatePullIsAnsweredAtOnceWithTheReason) {
  const auto p = StartPrefill({.lease = kLease});
  const auto d = StartDecode({.lease = kLease});
  p->PrefillAndWait("late", {1}, 1);
  clock_.Advance(kLease + absl::Seconds(1));
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-late"));
  d->Pull({TestDecode::Order("late", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).failed["d-late"], HasSubstr("transfer late has expired"));
}

TEST_F(EndpointsTest, ALeaseExpiresWhileNobodyStepsOrPulls) {
  const auto p = StartPrefill({.lease = kLease});
  p->PrefillAndWait("a", {1}, 1);
  clock_.Advance(kLease - absl::Seconds(1));
  EXPECT_THAT(p->endpoint().TakeFinished(), IsEmpty());
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
}

TEST_F(EndpointsTest, AnAbortedPrefillFailsThePullThatWaits) {
  const auto p = StartPrefill();
  const auto d = StartDecode();
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1})});
  WaitForPulls(*p, 1);
  p->Abort("a");
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("transfer a ended without KV"));
}

TEST_F(EndpointsTest, TheEndOfPFailsWhatWaitedForItLongBeforeTheDeadline) {
  auto p = StartPrefill();
  const auto d = StartDecode();
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1})});
  WaitForPulls(*p, 1);
  p.reset();
  // A write may land until then.
  std::vector<pd::FailingPull> failing;
  EXPECT_TRUE(WaitUntil([&] {
    failing = d->endpoint().TakeOutcomes().failing;
    return !failing.empty();
  }));
  EXPECT_EQ(failing[0].request_id, "d-a");
  EXPECT_THAT(failing[0].error, HasSubstr("closed the connection"));
  // Held no longer than the message's own deadline and the time for a late write.
  clock_.Advance(absl::Minutes(6));
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("closed the connection"));
}

TEST_F(EndpointsTest, TheEndOfAPOfThisHostHoldsDsBlocksForALateWriteAlone) {
  auto p = StartPrefill();
  const auto d = StartDecode();
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1}, absl::Hours(10))});
  WaitForPulls(*p, 1);
  p.reset();
  // Its listener may close after its connections, so D looks again.
  int64_t ended = 0;
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Seconds(1));
    return (ended += d->endpoint().TakeStats().ended_workers) == 1;
  }));
  EXPECT_THAT(d->WaitForEnded(0).failed, IsEmpty());
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("closed the connection"));
}

TEST_F(EndpointsTest, APThatStartsAgainIsFoundAgain) {
  auto p = StartPrefill({.incarnation = 1});
  const auto d = StartDecode();
  p->memory().Fill(1, 11);
  p->Announce("a");
  p->Finish("a", {1});
  d->Pull({TestDecode::Order("a", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).received, ElementsAre("d-a"));
  p->Announce("lost");
  d->Pull({TestDecode::Order("lost", url(), {2})});
  WaitForPulls(*p, 2);
  p.reset();
  p = StartPrefill({.incarnation = 2});
  EXPECT_TRUE(WaitUntil([&] { return !d->endpoint().TakeOutcomes().failing.empty(); }));
  p->memory().Fill(3, 33);
  p->Announce("b");
  p->Finish("b", {3});
  d->Pull({TestDecode::Order("b", url(), {3})});
  EXPECT_THAT(d->WaitForEnded(2).received, ElementsAre("d-a", "d-b"));
  EXPECT_TRUE(d->memory().Holds(3, 33));
}

TEST_F(EndpointsTest, TheEndOfDFreesItsKvWithTheLease) {
  const auto p = StartPrefill({.lease = kLease});
  auto d = StartDecode({.lease = kLease});
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1})});
  WaitForPulls(*p, 1);
  d.reset();
  p->Finish("a", {1});
  // The write fails, and another worker of D could still come.
  int64_t failed = 0;
  EXPECT_TRUE(WaitUntil([&] { return (failed += p->endpoint().TakeStats().producer.failed_transfers) == 1; }));
  EXPECT_THAT(p->endpoint().TakeFinished(), IsEmpty());
  clock_.Advance(kLease + absl::Seconds(1));
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
}

TEST_F(EndpointsTest, DNoticesAnotherLeaseThatPHasPublished) {
  const auto p = StartPrefill({.lease = absl::Seconds(30)});
  const auto d = StartDecode();
  p->Announce("a");
  p->Finish("a", {1});
  d->Pull({TestDecode::Order("a", url(), {1})});
  const auto shows = AllOf(HasSubstr("30 s on the prefill engine"), HasSubstr("off on the decode engine"));
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], shows);
  EXPECT_THAT(decode_board_->ToJson(), shows);
  // P hears of it, and its KV is free without a moment of the lease.
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
  EXPECT_THAT(p->board().ToJson(), AllOf(shows, HasSubstr(R"("transfer_id":"a")")));
}

TEST_F(EndpointsTest, PNoticesAnotherLeaseThatDSends) {
  std::shared_ptr<TestPrefill> p;
  bootstrap_ = StartTestBootstrap([&p] { return p->board().ToJson(); });
  // As if an old bootstrap server had dropped P's value, which would read as off.
  p = StartPrefill({.lease = absl::Seconds(30), .publishes_lease = false});
  const auto d = StartDecode();
  p->Announce("a");
  p->Finish("a", {1});
  d->Pull({TestDecode::Order("a", url(), {1})});
  const auto shows = AllOf(HasSubstr("30 s on the prefill engine"), HasSubstr("off on the decode engine"));
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], shows);
  const auto page = http::HttpClient({.host = "127.0.0.1", .port = bootstrap_->port()}, {}).Get("/status");
  EXPECT_THAT(page->body, AllOf(shows, HasSubstr(R"("transfer_id":"a")")));
}

TEST_F(EndpointsTest, OnlyALeaseOnDIsAMismatchToo) {
  const auto p = StartPrefill();
  const auto d = StartDecode({.lease = absl::Seconds(20)});
  p->Announce("a");
  p->Finish("a", {1});
  d->Pull({TestDecode::Order("a", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"],
              AllOf(HasSubstr("off on the prefill engine"), HasSubstr("20 s on the decode engine")));
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
  EXPECT_THAT(p->board().ToJson(), HasSubstr("off on the prefill engine and 20 s on the decode engine"));
}

TEST_F(EndpointsTest, TwoWorkersOfPServeOneOfD) {
  const auto first = StartPrefill({.tp_size = 2, .tp_rank = 0});
  const auto d = StartDecode();
  first->memory().Fill(5, 55);
  first->Announce("a");
  first->Finish("a", {5});
  // Until the second worker is registered the engine is not whole.
  d->Pull({TestDecode::Order("a", url(), {6})});
  const auto second = StartPrefill({.tp_size = 2, .tp_rank = 1});
  second->Announce("a");
  second->Finish("a", {5});
  int64_t pulls = 0;
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(absl::Milliseconds(100));  // The question is asked again. While answers are due, time stands still.
    return (pulls += d->endpoint().TakeStats().pulls) >= 2;
  }));
  EXPECT_THAT(d->WaitForEnded(1).received, ElementsAre("d-a"));
  EXPECT_TRUE(d->memory().Holds(6, 55));
  EXPECT_THAT(first->WaitForFinished(1), ElementsAre("p-a"));
  EXPECT_THAT(second->WaitForFinished(1), ElementsAre("p-a"));
}

TEST_F(EndpointsTest, AWorkerOfPThatExpiresAloneFailsTheRequestAndTheOtherIsFreeEdge14) {
  const auto early = StartPrefill({.lease = kLease, .tp_size = 2, .tp_rank = 0});
  const auto late = StartPrefill({.lease = kLease, .tp_size = 2, .tp_rank = 1});
  const auto d = StartDecode({.lease = kLease});
  early->PrefillAndWait("a", {1}, 1);
  clock_.Advance(kLease - absl::Seconds(1));
  late->PrefillAndWait("a", {1}, 1);
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(early->WaitForFinished(1), ElementsAre("p-a"));
  EXPECT_THAT(late->endpoint().TakeFinished(), IsEmpty());
  d->Pull({TestDecode::Order("a", url(), {2})});
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("transfer a has expired"));
  EXPECT_THAT(late->WaitForFinished(1), ElementsAre("p-a"));
}

TEST_F(EndpointsTest, OneEngineMayHaveTheSameIdsOnBothItsSidesEdge40) {
  // Two engines of kv_both: each computes a request "same" for the other.
  const auto other_bootstrap = StartTestBootstrap();
  const auto p_here = StartPrefill({.engine_id = "here"});
  const auto d_here = StartDecode();
  TestPrefill p_there(*other_bootstrap, network_, clock_, {.engine_id = "there"});
  const auto d_there = StartDecode();
  p_here->memory().Fill(1, 11);
  p_there.memory().Fill(2, 22);
  for (TestPrefill* p : {p_here.get(), &p_there}) p->Announce("same");
  d_there->Pull({TestDecode::Order("same", url(), {3}, absl::Minutes(5), "here")});
  d_here->Pull({TestDecode::Order("same", BootstrapUrl(*other_bootstrap), {4}, absl::Minutes(5), "there")});
  p_here->Abort("same");
  EXPECT_THAT(d_there->WaitForEnded(1).failed["d-same"], HasSubstr("ended without KV"));
  p_there.Finish("same", {2});
  EXPECT_THAT(d_here->WaitForEnded(1).received, ElementsAre("d-same"));
  EXPECT_TRUE(d_here->memory().Holds(4, 22));
}

TEST_F(EndpointsTest, ADeadBootstrapServerDelaysNoOther) {
  const auto p = StartPrefill();
  const auto d = StartDecode();
  p->memory().Fill(1, 11);
  p->Announce("a");
  p->Finish("a", {1});
  int dead_port = 0;
  { dead_port = StartTestBootstrap()->port(); }
  const std::string dead = fmt::format("http://127.0.0.1:{}", dead_port);
  d->Pull({TestDecode::Order("b", dead, {2}, absl::Minutes(5), "other"), TestDecode::Order("a", url(), {1}),
           TestDecode::Order("c", "nonsense", {3}, absl::Minutes(5), "third")});
  const TestDecode::Ended ended = d->WaitForEnded(3);
  EXPECT_THAT(ended.received, ElementsAre("d-a"));
  EXPECT_THAT(ended.failed.at("d-b"), HasSubstr(dead));
  EXPECT_THAT(ended.failed.at("d-c"), HasSubstr("nonsense"));
}

TEST_F(EndpointsTest, TooManyMessagesAreRefusedAndTheRestIsServed) {
  const auto p = StartPrefill({.messages_waiting_max = 0});
  const auto d = StartDecode();
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("too many messages waiting; retry later"));
}

TEST_F(EndpointsTest, MessagesOfTooManyBytesAreRefusedAndTheRestIsServed) {
  // A pull has more than 100 bytes; a renewal has less.
  const auto p = StartPrefill({.lease = kLease, .message_bytes_waiting_max = 100});
  const auto d = StartDecode({.lease = kLease});
  p->Announce("a");
  d->Pull({TestDecode::Order("a", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).failed["d-a"], HasSubstr("too many messages waiting; retry later"));
  RenewalSenderOptions options;
  options.schedule.lease = kLease;
  const auto sender = RenewalSender::Start(options, clock_);
  ASSERT_TRUE((*sender)->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  for (int64_t renewals = 0; renewals < 3; ++renewals) {
    (*sender)->Stepped();
    clock_.Advance(kLease / 6);
    EXPECT_TRUE(WaitUntil([&] { return p->renewals() > renewals; }));
  }
}

TEST_F(EndpointsTest, MessageOfTwoFramesIsAnErrorAndCountsEdge28) {
  const auto p = StartPrefill();
  const ZmqContext context(8);
  auto peer = ZmqSocket::Create(context, {.kind = ZmqSocketOptions::Kind::kDealer, .message_bytes_max = 1 << 20});
  ASSERT_TRUE(peer.ok() && peer->Connect(p->endpoint().address()).ok());
  EXPECT_TRUE(WaitUntil([&] { return peer->Poll().out; }));
  ASSERT_EQ(peer->Send({"two", "frames"}), ZmqSocket::Sent::kYes);
  EXPECT_TRUE(WaitUntil([&] { return peer->Poll().in; }));
  const auto reply = pd::DecodeReply(peer->Receive().value().frames.at(0));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, pd::ReplyStatus::kError);
  EXPECT_THAT(*reply->err_message, HasSubstr("a message is one frame"));
  EXPECT_EQ(p->endpoint().TakeStats().producer.malformed_messages, 1);
  EXPECT_EQ(p->endpoint().TakeStats().producer.malformed_messages, 0);
}

class RenewalTest : public EndpointsTest {
 protected:
  std::unique_ptr<RenewalSender> StartSender() {
    RenewalSenderOptions options;
    options.schedule.lease = kLease;
    auto started = RenewalSender::Start(options, clock_);
    EXPECT_TRUE(started.ok()) << started.status();
    return std::move(started).value();
  }
  // A sixth of the lease passes, and the renewal that is due then arrives.
  bool PassRound(TestPrefill& p) {
    const int64_t before = p.renewals();
    clock_.Advance(kLease / 6);
    return WaitUntil([&] { return p.renewals() > before; }, absl::Seconds(10));
  }
};

TEST_F(RenewalTest, ATransferThatIsRenewedOutlivesManyLeases) {
  const auto p = StartPrefill({.lease = kLease});
  const auto sender = StartSender();
  const auto d = StartDecode({.lease = kLease});
  p->memory().Fill(1, 11);
  size_t held = 0;
  for (const std::string id : {"a", "b"}) {
    p->PrefillAndWait(id, {1}, ++held);
    ASSERT_TRUE(sender->Track("d-" + id, id, "prefill", url(), absl::Hours(1)).ok());
  }
  // Twelve leases.
  for (int round = 0; round < 72; ++round) {
    sender->Stepped();
    ASSERT_TRUE(PassRound(*p)) << round;
    ASSERT_THAT(p->endpoint().TakeFinished(), IsEmpty()) << round;
  }
  d->Pull({TestDecode::Order("a", url(), {1})});
  EXPECT_THAT(d->WaitForEnded(1).received, ElementsAre("d-a"));
  // What is renewed no more is freed after what is left of its lease.
  sender->Stop("d-a");
  sender->Stop("d-b");
  EXPECT_EQ(sender->num_tracked(), 0u);
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
  clock_.Advance(kLease);
  EXPECT_THAT(p->WaitForFinished(2), ElementsAre("p-a", "p-b"));
}

TEST_F(RenewalTest, APThatIsTooBusyForARenewalGetsTheNextOne) {
  const auto p = StartPrefill({.lease = kLease, .message_bytes_waiting_max = 10});
  const auto sender = StartSender();
  ASSERT_TRUE(sender->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  pd::RenewerStats stats;
  const auto sent = [&](int64_t count) {
    const pd::RenewerStats more = sender->TakeStats();
    stats.sent += more.sent;
    stats.lost += more.lost;
    stats.refusing_engines += more.refusing_engines;
    return stats.sent >= count;
  };
  for (int64_t round = 1; round <= 3; ++round) {
    clock_.Advance(kLease / 6);
    EXPECT_TRUE(WaitUntil([&] { return sent(round); }));
    // It was dropped at P before the round ends.
    EXPECT_TRUE(WaitUntil([&] { return p->endpoint().TakeStats().router.messages >= round; }));
  }
  EXPECT_EQ(stats.refusing_engines, 0);
  EXPECT_GE(stats.lost, 2);
  EXPECT_EQ(p->renewals(), 0);
}

TEST_F(RenewalTest, AHungSchedulerHoldsNothingForLong) {
  const auto p = StartPrefill({.lease = kLease});
  const auto sender = StartSender();
  p->PrefillAndWait("a", {1}, 1);
  ASSERT_TRUE(sender->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  sender->Stepped();
  for (int round = 0; round < 59; ++round) ASSERT_TRUE(PassRound(*p)) << round;
  EXPECT_THAT(p->endpoint().TakeFinished(), IsEmpty());
  // Ten leases without a step.
  clock_.Advance(kLease / 6 + kLease);
  EXPECT_THAT(p->WaitForFinished(1), ElementsAre("p-a"));
}

TEST_F(RenewalTest, ARequestAfterALongIdleTimeIsRenewed) {
  const auto p = StartPrefill({.lease = kLease});
  const auto sender = StartSender();
  clock_.Advance(kLease * 20);
  p->PrefillAndWait("a", {1}, 1);
  ASSERT_TRUE(sender->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  for (int round = 0; round < 12; ++round) ASSERT_TRUE(PassRound(*p)) << round;
  EXPECT_THAT(p->endpoint().TakeFinished(), IsEmpty());
}

TEST_F(RenewalTest, AnIdleSchedulerIsNotAHungOne) {
  const auto p = StartPrefill({.lease = kLease});
  const auto sender = StartSender();
  p->PrefillAndWait("a", {1}, 1);
  ASSERT_TRUE(sender->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  sender->WentIdle();
  for (int round = 0; round < 72; ++round) ASSERT_TRUE(PassRound(*p)) << round;
  EXPECT_THAT(p->endpoint().TakeFinished(), IsEmpty());
}

TEST_F(RenewalTest, ATransferThatPLostIsTold) {
  const auto p = StartPrefill({.lease = kLease});
  const auto sender = StartSender();
  p->Announce("a");
  ASSERT_TRUE(sender->Track("d-a", "a", "prefill", url(), absl::Hours(1)).ok());
  sender->Stepped();
  ASSERT_TRUE(PassRound(*p));
  p->Abort("a");
  std::vector<pd::RenewerActions::Gone> gone;
  EXPECT_TRUE(WaitUntil([&] {
    clock_.Advance(kLease / 60);
    gone = sender->TakeGone();
    return !gone.empty();
  }));
  EXPECT_EQ(gone[0].engine_id, "prefill");
  EXPECT_EQ(gone[0].transfer_id, "a");
}

}  // namespace
}  // namespace tenure::handoff
