// The session's rules without any socket: what a client may hold, and what ends what.
#include "tenure/daemon/daemon_session.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tenure/daemon/client_objects_testing.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::PutAnswer;

constexpr uint64_t kObjectBytes = 1000;

class DaemonSessionTest : public ::testing::Test {
 protected:
  DaemonSessionTest() {
    store::EmbeddedPoolOptions options;
    options.capacity = Bytes(256 << 10);
    options.slab_bytes = Bytes(16 << 10);
    options.memory = store::MemoryKind::kVirtual;
    options.shards = 1;
    pool_ = store::EmbeddedPool::Create(options, clock_).value();
    state_.limits = {.held_bytes_max = Bytes(5000), .held_objects_max = 4, .leased_keys_max = 3};
    state_.memory = options.capacity;
    state_.object_max = options.slab_bytes;
    state_.closed = true;
    session_ = Greeted();
  }
  std::unique_ptr<DaemonSession> Greeted() {
    auto session = std::make_unique<DaemonSession>(*pool_, clock_, state_);
    HelloReply hello;
    Ask(*session, HelloRequest(), hello);
    OpenNamespaceReply opened;
    Ask(*session, OpenNamespaceRequest{.prefix = "p"}, opened);
    return session;
  }

  // False when the answer is an error, which then is in error_.
  template <typename Request, typename Reply>
  bool Ask(DaemonSession& session, const Request& request, Reply& reply) {
    std::vector<std::byte> answer;
    Step(session, request, answer);
    const FrameHeader header = ParseHeader(answer).value().value();
    const auto body = std::span<const std::byte>(answer).subspan(FrameHeader::kBytes);
    EXPECT_EQ(header.request, 77u);
    if (header.type == ErrorReply::kType) {
      EXPECT_TRUE(DecodeBody(body, error_));
      return false;
    }
    EXPECT_EQ(header.type, Reply::kType);
    return DecodeBody(body, reply);
  }
  template <typename Request>
  DaemonSession::Next Step(DaemonSession& session, const Request& request, std::vector<std::byte>& answer) {
    std::vector<std::byte> frame;
    AppendFrame(request, 77, frame);
    return session.Handle(ParseHeader(frame).value().value(), std::span(frame).subspan(FrameHeader::kBytes), answer);
  }
  template <typename Request>
  void Tell(const Request& request) {
    std::vector<std::byte> answer;
    Step(*session_, request, answer);
    EXPECT_TRUE(answer.empty()) << "this message has no answer";
  }

  store::ObjectKey Key(uint64_t number) const { return TestKey(store::NamespaceId(0), number); }
  ReserveReply Reserve(uint64_t first, uint64_t count) {
    ReserveRequest request;
    for (uint64_t i = first; i < first + count; ++i) {
      request.objects.push_back({.key = Key(i), .size = kObjectBytes, .kind = store::ObjectKind::kOther, .parent = {}});
    }
    ReserveReply reply;
    EXPECT_TRUE(Ask(*session_, request, reply));
    return reply;
  }
  PutAnswer Commit(uint64_t batch, uint32_t ordinal) {
    CommitReply reply;
    EXPECT_TRUE(Ask(*session_, CommitRequest{.batch = batch, .objects = {{.ordinal = ordinal, .digest = 5}}}, reply));
    return reply.answers.at(0);
  }
  void Store(uint64_t number) { EXPECT_EQ(Commit(Reserve(number, 1).batch, 0), PutAnswer::kStored); }

  ManualClock clock_;
  std::unique_ptr<store::EmbeddedPool> pool_;
  DaemonState state_;
  std::unique_ptr<DaemonSession> session_;
  ErrorReply error_;
};

TEST_F(DaemonSessionTest, ReservedObjectIsVisibleAfterItsCommitOnly) {
  const ReserveReply reserved = Reserve(1, 1);
  PinReply pins;
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(1)}}, pins));
  EXPECT_EQ(pins.places[0].answer, KeyAnswer::kAbsent);
  EXPECT_EQ(Commit(reserved.batch, 0), PutAnswer::kStored);
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(1)}}, pins));
  EXPECT_EQ(pins.places[0].answer, KeyAnswer::kPresent);
  EXPECT_EQ(pins.places[0].offset, reserved.places[0].offset);
  EXPECT_EQ(pins.places[0].size, kObjectBytes);
  EXPECT_EQ(pins.places[0].digest, 5u);
}

TEST_F(DaemonSessionTest, SecondCommitAndCommitOfAnUnknownBatchStoreNothing) {
  const ReserveReply reserved = Reserve(1, 1);
  EXPECT_EQ(Commit(reserved.batch, 0), PutAnswer::kStored);
  EXPECT_EQ(Commit(reserved.batch, 0), PutAnswer::kNotStored);
  EXPECT_EQ(Commit(reserved.batch + 1000, 0), PutAnswer::kNotStored);
  EXPECT_EQ(Commit(reserved.batch, 4'000'000'000u), PutAnswer::kNotStored);
  EXPECT_EQ(pool_->Stats().objects, 1);
}

TEST_F(DaemonSessionTest, ClientThatHoldsItsMaximumGetsTheFirstOfABatchOnly) {
  const ReserveReply reserved = Reserve(1, 6);  // 4 objects are the maximum.
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(reserved.places[i].answer, i < 4 ? PutAnswer::kStored : PutAnswer::kRefusedFull) << i;
    EXPECT_EQ(reserved.places[i].offset == kNoOffset, i >= 4) << i;
  }
  EXPECT_EQ(state_.held_refusals_total, 2);
  EXPECT_EQ(session_->holdings().held_bytes(), Bytes(4 * kObjectBytes));
  Tell(AbandonRequest{.batch = reserved.batch});
  EXPECT_EQ(session_->holdings().held_objects(), 0);
  EXPECT_EQ(Reserve(1, 1).places[0].answer, PutAnswer::kStored);
}

TEST_F(DaemonSessionTest, PinsAboveTheMaximumAreUnavailable) {
  for (uint64_t i = 0; i < 6; ++i) Store(i);
  PinReply pins;
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(0), Key(1), Key(2), Key(3), Key(4), Key(9)}}, pins));
  EXPECT_EQ(pins.places[3].answer, KeyAnswer::kPresent);
  EXPECT_EQ(pins.places[4].answer, KeyAnswer::kUnavailable);
  EXPECT_EQ(pins.places[5].answer, KeyAnswer::kAbsent);
  EXPECT_EQ(pool_->Stats().held.pinned, 4);
  Tell(UnpinRequest{.batch = pins.batch, .corrupt = {}});
  EXPECT_EQ(pool_->Stats().held.pinned, 0);
  EXPECT_EQ(session_->holdings().held_bytes(), Bytes(0));
}

TEST_F(DaemonSessionTest, ObjectWhoseDigestFailedIsRemovedOnce) {
  Store(0);
  Store(1);
  PinReply first;
  PinReply second;
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(0), Key(1)}}, first));
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(0)}}, second));
  Tell(UnpinRequest{.batch = first.batch, .corrupt = {0, 7, 4'000'000'000u}});
  ProbeReply probe;
  ASSERT_TRUE(Ask(*session_, ProbeRequest{.keys = {Key(0), Key(1)}}, probe));
  EXPECT_EQ(probe.answers[0], KeyAnswer::kAbsent);
  EXPECT_EQ(probe.answers[1], KeyAnswer::kPresent);
  Store(0);
  Tell(UnpinRequest{.batch = second.batch, .corrupt = {0}});
  Tell(UnpinRequest{.batch = second.batch, .corrupt = {0}});
  ASSERT_TRUE(Ask(*session_, ProbeRequest{.keys = {Key(0)}}, probe));
  EXPECT_EQ(probe.answers[0], KeyAnswer::kPresent) << "the good object that was put after the bad one";
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 2) << "two readers found it";
}

TEST_F(DaemonSessionTest, LeasedKeysHaveAMaximumThatLeasesRunOutOf) {
  for (uint64_t i = 0; i < 4; ++i) Store(i);
  LeaseRequest lease{.ttl_nanoseconds = 1'000'000'000, .keys = {Key(0), Key(1), Key(2)}};
  LeaseReply reply;
  ASSERT_TRUE(Ask(*session_, lease, reply));
  EXPECT_NE(reply.lease, 0u);
  EXPECT_FALSE(Ask(*session_, lease, reply));
  EXPECT_EQ(error_.code, ErrorCode::kResourceExhausted);
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Ask(*session_, lease, reply));
  Tell(ReleaseLeaseRequest{.leases = {reply.lease, reply.lease, 12345}});
  EXPECT_EQ(pool_->Stats().held.leased, 0);
  EXPECT_EQ(session_->holdings().leased_keys(), 0);
}

TEST_F(DaemonSessionTest, LeaseOfAbsentKeysHoldsNothing) {
  LeaseReply reply;
  ASSERT_TRUE(Ask(*session_, LeaseRequest{.ttl_nanoseconds = 1, .keys = {Key(0)}}, reply));
  EXPECT_EQ(reply.lease, 0u);
  EXPECT_EQ(reply.answers[0], KeyAnswer::kAbsent);
}

TEST_F(DaemonSessionTest, EndOfAClientEndsWhatItHoldsButItsLeases) {
  Store(0);
  LeaseReply lease;
  ASSERT_TRUE(Ask(*session_, LeaseRequest{.ttl_nanoseconds = 1'000'000'000, .keys = {Key(0)}}, lease));
  PinReply pins;
  ASSERT_TRUE(Ask(*session_, PinRequest{.keys = {Key(0)}}, pins));
  Reserve(1, 2);
  session_.reset();
  const store::PoolStats stats = pool_->Stats();
  EXPECT_EQ(stats.held.writing, 0);
  EXPECT_EQ(stats.held.pinned, 0);
  EXPECT_EQ(stats.held.leased, 1);
  EXPECT_EQ(stats.used, Bytes(kObjectBytes));
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(pool_->Stats().held.leased, 0);
}

TEST_F(DaemonSessionTest, OneClientCannotEndWhatAnotherHolds) {
  const ReserveReply reserved = Reserve(1, 1);
  const std::unique_ptr<DaemonSession> other = Greeted();
  CommitReply reply;
  ASSERT_TRUE(Ask(*other, CommitRequest{.batch = reserved.batch, .objects = {{.ordinal = 0, .digest = 0}}}, reply));
  EXPECT_EQ(reply.answers[0], PutAnswer::kNotStored);
  EXPECT_EQ(Commit(reserved.batch, 0), PutAnswer::kStored);
}

TEST_F(DaemonSessionTest, DrainingFinishesWhatIsHeldAndHandsOutNothing) {
  Store(0);
  const ReserveReply reserved = Reserve(1, 1);
  state_.draining = true;
  ReserveReply refused;
  EXPECT_FALSE(Ask(*session_, ReserveRequest(), refused));
  EXPECT_EQ(error_.code, ErrorCode::kUnavailable);
  LeaseReply lease;
  EXPECT_FALSE(Ask(*session_, LeaseRequest{.ttl_nanoseconds = 1, .keys = {Key(0)}}, lease));
  PinReply pins;
  EXPECT_FALSE(Ask(*session_, PinRequest{.keys = {Key(0)}}, pins));
  EXPECT_EQ(Commit(reserved.batch, 0), PutAnswer::kStored);
}

TEST_F(DaemonSessionTest, BadInputIsAnErrorThatNamesTheArgument) {
  ProbeReply reply;
  EXPECT_FALSE(Ask(*session_, ProbeRequest{.keys = {TestKey(store::NamespaceId(55), 1)}}, reply));
  EXPECT_EQ(error_.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error_.text.find("55"), std::string::npos);
  LeaseReply lease;
  EXPECT_FALSE(Ask(*session_, LeaseRequest{.ttl_nanoseconds = -1, .keys = {Key(0)}}, lease));
  EXPECT_EQ(error_.code, ErrorCode::kInvalidArgument);
  ReserveReply reserved;
  const ReserveObject empty{.key = Key(0), .size = 0, .parent = {}};
  EXPECT_FALSE(Ask(*session_, ReserveRequest{.objects = {empty}}, reserved));
  EXPECT_EQ(error_.code, ErrorCode::kInvalidArgument);
  const ReserveObject strange{.key = Key(0), .size = 1, .kind = static_cast<store::ObjectKind>(99), .parent = {}};
  std::vector<std::byte> answer;
  EXPECT_EQ(Step(*session_, ReserveRequest{.objects = {strange}}, answer), DaemonSession::Next::kOver);
}

}  // namespace
}  // namespace tenure::daemon
