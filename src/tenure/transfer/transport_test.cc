// What every transport promises, between two transports of one process.
#include "tenure/transfer/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/memory_transport_testing.h"
#include "tenure/transfer/transport_rig_testing.h"
#include "tenure/transfer/transports.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261130;

class AnyTransport : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Transport> Make() {
    if (GetParam() == MemoryTransport::kKind) return std::make_unique<MemoryTransport>(network_, clock_);
    auto transport = CreateTransport(GetParam(), "127.0.0.1", clock_);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }
  MonotonicTime Soon() const { return clock_.Now() + absl::Seconds(30); }

  MonotonicClock clock_;
  MemoryNetwork network_;
};

TEST_P(AnyTransport, WritesEveryPieceAndNothingElse) {
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  const TestMemory source(1 << 20, kSeed);
  const TestMemory target(1 << 20);
  const auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  std::vector<unsigned char> expected(target.bytes().size());
  std::vector<pd::WritePiece> pieces;
  for (uint64_t to = 0; to < target.bytes().size();) {
    uint64_t size = std::min<uint64_t>(1 + random.Below(5000), target.bytes().size() - to);
    const uint64_t from = random.Below(source.bytes().size() - size);
    if (random.Chance(0.5)) {
      pieces.push_back({source.address() + from, target.address() + to, size});
      std::copy_n(source.bytes().begin() + static_cast<int64_t>(from), size,
                  expected.begin() + static_cast<int64_t>(to));
    }
    to += size;
  }
  const WriteResult result = WriteAndWait(*prefill, decode->Address(), pieces, Soon());
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_EQ(target.Arrived(), expected);
}

TEST_P(AnyTransport, PostWithoutPiecesIsDone) {
  const auto prefill = Make();
  const auto decode = Make();
  EXPECT_TRUE(WriteAndWait(*prefill, decode->Address(), {}, Soon()).status.ok());
}

TEST_P(AnyTransport, PiecesOutsideOfRegisteredMemoryWriteNothing) {
  const TestMemory source(100, kSeed);
  const TestMemory target(100);
  const auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  for (const pd::WritePiece& piece : {pd::WritePiece{source.address() + 1, target.address(), 100},
                                      pd::WritePiece{source.address(), target.address() + 1, 100},
                                      pd::WritePiece{source.address(), 8, 8}, pd::WritePiece{8, target.address(), 8}}) {
    const WriteResult result =
        WriteAndWait(*prefill, decode->Address(), {{source.address(), target.address(), 50}, piece}, Soon());
    EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
    EXPECT_TRUE(result.settled);
  }
  EXPECT_EQ(target.Arrived(), std::vector<unsigned char>(100));
}

TEST_P(AnyTransport, DeadlineThatHasPassedIsTheAnswer) {
  const TestMemory source(100, kSeed);
  const TestMemory target(100);
  const auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  if (GetParam() == MemoryTransport::kKind) return;  // It looks at the deadline only when told to hold.
  const WriteResult result =
      WriteAndWait(*prefill, decode->Address(), {{source.address(), target.address(), 100}}, clock_.Now());
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_EQ(target.Arrived(), std::vector<unsigned char>(100));
}

TEST_P(AnyTransport, AddressOfAnotherKindIsRefusedWithBothNames) {
  const auto prefill = Make();
  const std::string own = prefill->kind() == "auto" ? "\"local\", \"tcp\"" : GetParam();
  const pd::TransportAddress other = {"carrier pigeon", "coop 7", {}};
  for (const absl::Status& status : {prefill->CanReach(other), WriteAndWait(*prefill, other, {}, Soon()).status}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(Message(status)), HasSubstr("carrier pigeon"));
    EXPECT_THAT(std::string(Message(status)), HasSubstr(own));
  }
}

TEST_P(AnyTransport, AddressOfNonsenseIsAnError) {
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  const auto prefill = Make();
  const TestMemory source(100, kSeed);
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  for (int i = 0; i < 20; ++i) {
    pd::TransportAddress nonsense = {GetParam(), "", {{4096, 100, ""}}};
    for (uint64_t bytes = random.Below(60); bytes > 0; --bytes) {
      nonsense.address.push_back(static_cast<char>(random.Below(256)));
    }
    const WriteResult result = WriteAndWait(*prefill, nonsense, {{source.address(), 4096, 100}}, Soon());
    EXPECT_FALSE(result.status.ok());
  }
}

TEST_P(AnyTransport, RegisteringTwiceIsRefusedAndChangesNothing) {
  const TestMemory memory(100);
  const auto transport = Make();
  ASSERT_TRUE(transport->Register(memory.range()).ok());
  const pd::TransportAddress before = transport->Address();
  EXPECT_TRUE(absl::IsInvalidArgument(transport->Register(memory.range())));
  EXPECT_EQ(transport->Address(), before);
}

TEST_P(AnyTransport, AnswersWhatIsOpenWhenItEnds) {
  const TestMemory source(4 << 20, kSeed);
  const TestMemory target(4 << 20);
  auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  std::vector<PostedWrite> writes(50);
  for (const PostedWrite& write : writes) {
    prefill->Post(decode->Address(), {{source.address(), target.address(), 4 << 20}}, Soon(), write.Done());
  }
  prefill.reset();
  for (const PostedWrite& write : writes) {
    ASSERT_TRUE(write.done());
    const absl::Status status = write.Wait().status;
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
}

TEST_P(AnyTransport, PostsOfManyThreadsAreAnsweredOnceEach) {
  constexpr size_t kThreads = 4;
  const auto posts = static_cast<size_t>(RandomCases(500));
  constexpr size_t kBytes = 512;
  const TestMemory source(kThreads * kBytes, kSeed);
  const TestMemory target(kThreads * kBytes);
  const auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const uint64_t offset = thread * kBytes;
      std::vector<PostedWrite> writes(posts);
      for (const PostedWrite& write : writes) {
        prefill->Post(decode->Address(), {{source.address() + offset, target.address() + offset, kBytes}}, Soon(),
                      write.Done());
      }
      for (const PostedWrite& write : writes) {
        const absl::Status status = write.Wait().status;
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(target.Arrived(), source.bytes());
}

TEST_P(AnyTransport, PostFromWithinDoneIsCarriedOut) {
  const TestMemory source(64, kSeed);
  const TestMemory target(64);
  const auto prefill = Make();
  const auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  const pd::TransportAddress peer = decode->Address();
  const PostedWrite second;
  prefill->Post(peer, {{source.address(), target.address(), 32}}, Soon(), [&](const WriteResult& first) {
    EXPECT_TRUE(first.status.ok()) << first.status;
    prefill->Post(peer, {{source.address() + 32, target.address() + 32, 32}}, Soon(), second.Done());
  });
  EXPECT_TRUE(second.Wait().status.ok());
  EXPECT_EQ(target.Arrived(), source.bytes());
}

TEST_P(AnyTransport, PeerThatHasEndedIsAnError) {
  const TestMemory source(64, kSeed);
  const TestMemory target(64);
  const auto prefill = Make();
  auto decode = Make();
  ASSERT_TRUE(prefill->Register(source.range()).ok());
  ASSERT_TRUE(decode->Register(target.range()).ok());
  const pd::TransportAddress old = decode->Address();
  decode.reset();
  decode = Make();
  ASSERT_TRUE(decode->Register(target.range()).ok());
  EXPECT_FALSE(WriteAndWait(*prefill, old, {{source.address(), target.address(), 64}}, Soon()).status.ok());
  EXPECT_EQ(target.Arrived(), std::vector<unsigned char>(64));
  EXPECT_TRUE(
      WriteAndWait(*prefill, decode->Address(), {{source.address(), target.address(), 64}}, Soon()).status.ok());
  EXPECT_EQ(target.Arrived(), source.bytes());
}

INSTANTIATE_TEST_SUITE_P(Transports, AnyTransport, ::testing::Values("memory", "local", "tcp", "ucx", "auto"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Transports, NameThatIsNoneIsRefusedWithTheChoices) {
  const MonotonicClock clock;
  EXPECT_THAT(std::string(Message(CreateTransport("rdma", "127.0.0.1", clock).status())),
              HasSubstr("transport is \"rdma\"; use \"auto\", \"local\" (one host), \"tcp\" or \"ucx\""));
}

}  // namespace
}  // namespace tenure::transfer
