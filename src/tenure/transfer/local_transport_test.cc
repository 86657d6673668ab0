// The transport of one host between two real processes: bytes, ends, restarts, and peers that are not who they were.
#include "tenure/transfer/local_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kBytes = 20 << 20;  // Several parts.

class LocalTransportTest : public ::testing::Test {
 protected:
  LocalTransportTest() { EXPECT_TRUE(transport_->Register(source_.range()).ok()); }
  MonotonicTime Soon() const { return clock_.Now() + absl::Seconds(30); }
  WriteResult WriteAll(const PeerProcess& peer) {
    return WriteAndWait(*transport_, peer.address(), {{source_.address(), peer.base(), kBytes}}, Soon());
  }

  MonotonicClock clock_;
  const TestMemory source_ = TestMemory(kBytes, kSeed);
  std::unique_ptr<LocalTransport> transport_ = LocalTransport::Create({}, clock_).value();
};

TEST_F(LocalTransportTest, BytesArriveInAnotherProcess) {
  PeerProcess peer("local", kBytes);
  EXPECT_TRUE(transport_->CanReach(peer.address()).ok()) << transport_->CanReach(peer.address());
  const WriteResult result = WriteAll(peer);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(LocalTransportTest, ManySmallPiecesArrive) {
  PeerProcess peer("local", kBytes);
  constexpr uint64_t kPieces = 10'000;
  std::vector<unsigned char> expected(kPieces * 2000);
  std::vector<pd::WritePiece> pieces;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t from = (kPieces - 1 - i) * 1000;
    pieces.push_back({source_.address() + from, peer.base() + i * 2000, 1000});
    std::copy_n(source_.bytes().begin() + static_cast<int64_t>(from), 1000,
                expected.begin() + static_cast<int64_t>(i * 2000));
  }
  const WriteResult result = WriteAndWait(*transport_, peer.address(), pieces, Soon());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(peer.ChecksumOf(0, expected.size()), Checksum(expected.data(), expected.size()));
}

TEST_F(LocalTransportTest, KilledPeerIsAnErrorBeforeAndAfterItIsReaped) {
  PeerProcess peer("local", kBytes);
  peer.Kill();
  for (int reaped = 0; reaped < 2; ++reaped) {
    const WriteResult result = WriteAll(peer);
    EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
    EXPECT_THAT(std::string(Message(result.status)), HasSubstr("has ended"));
    EXPECT_TRUE(result.settled);
    EXPECT_TRUE(absl::IsUnavailable(transport_->CanReach(peer.address())));
    peer.Reap();
  }
}

TEST_F(LocalTransportTest, PeerKilledInTheMiddleIsAnError) {
  PeerProcess peer("local", kBytes);
  std::vector<PostedWrite> writes(100);
  for (const PostedWrite& write : writes) {
    transport_->Post(peer.address(), {{source_.address(), peer.base(), kBytes}}, Soon(), write.Done());
  }
  ASSERT_TRUE(writes.front().Wait().status.ok());
  peer.Kill();
  for (const PostedWrite& write : writes) {
    const absl::Status status = write.Wait().status;
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
  EXPECT_TRUE(absl::IsUnavailable(writes.back().Wait().status));
}

TEST_F(LocalTransportTest, StoppedPeerIsWrittenToAllTheSame) {
  PeerProcess peer("local", kBytes);
  peer.Signal(SIGSTOP);
  const WriteResult result = WriteAll(peer);
  EXPECT_TRUE(result.status.ok()) << result.status;
  peer.Signal(SIGCONT);
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(LocalTransportTest, MemoryThatThePeerHasUnmappedIsAnErrorAndThePeerLivesOn) {
  PeerProcess peer("local", kBytes);
  peer.Unmap();
  const WriteResult result = WriteAll(peer);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  // The part that failed first begins where it says; any of them may, since idle threads help.
  const std::string text(Message(result.status));
  const std::string before = "or from 0x";
  ASSERT_THAT(text, HasSubstr(before));
  const uint64_t named = std::stoull(text.substr(text.find(before) + before.size()), nullptr, 16);
  EXPECT_GE(named, peer.base()) << text;
  EXPECT_LT(named, peer.base() + kBytes) << text;
  peer.Exec();
  EXPECT_TRUE(WriteAll(peer).status.ok());
}

TEST_F(LocalTransportTest, AddressOfAnEarlierTransportIsRefusedWithoutAByteWritten) {
  PeerProcess peer("local", kBytes);
  const pd::TransportAddress old = peer.address();
  peer.RenewTransport();
  ASSERT_EQ(peer.base(), old.memory[0].base);
  const WriteResult result = WriteAndWait(*transport_, old, {{source_.address(), old.memory[0].base, kBytes}}, Soon());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), TestMemory(kBytes).ChecksumOf(0, kBytes));
}

TEST_F(LocalTransportTest, AddressFromBeforeAnExecIsRefused) {
  PeerProcess peer("local", kBytes);
  const pd::TransportAddress old = peer.address();
  peer.Exec();
  const WriteResult result = WriteAndWait(*transport_, old, {{source_.address(), old.memory[0].base, 64}}, Soon());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
}

TEST_F(LocalTransportTest, NumberOfAProcessThatWasUsedAgainIsNeverWrittenTo) {
  PeerProcess peer("local", kBytes);
  LocalIdentity identity = DecodeLocalIdentity(peer.address().address).value();
  --identity.start_time;
  const absl::Status status = LocalPeer::Open(identity).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("another one has its number"));
}

TEST_F(LocalTransportTest, AnotherHostOrPidNamespaceNamesUcx) {
  PeerProcess peer("local", 4096);
  for (std::string LocalIdentity::*field : {&LocalIdentity::boot_id, &LocalIdentity::pid_namespace}) {
    LocalIdentity identity = DecodeLocalIdentity(peer.address().address).value();
    identity.*field += "x";
    const pd::TransportAddress elsewhere = {"local", EncodeLocalIdentity(identity), peer.address().memory};
    const absl::Status status = transport_->CanReach(elsewhere);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("use the ucx transport"));
  }
}

// Another user's process may not be traced. Only root can become another user, and anybody else cannot arrange this.
TEST_F(LocalTransportTest, PeerThatMayNotBeTracedNamesTheRemedies) {
  constexpr uid_t kNobody = 65534;
  PeerProcess peer("local", 4096);
  const LocalIdentity identity = DecodeLocalIdentity(peer.address().address).value();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setuid(kNobody) != 0) _exit(0);
    const absl::Status status = LocalPeer::Open(identity).status();
    const bool named = Message(status).find("kernel.yama.ptrace_scope") != std::string_view::npos &&
                       Message(status).find("ucx") != std::string_view::npos;
    _exit(absl::IsFailedPrecondition(status) && named ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(LocalTransportTest, TooManyOpenPostsAreRefused) {
  PeerProcess peer("local", 4096);
  Mutex gate;
  gate.Lock();
  const auto one_thread = LocalTransport::Create({.threads = 1}, clock_).value();
  ASSERT_TRUE(one_thread->Register(source_.range()).ok());
  one_thread->Post(peer.address(), {}, Soon(), [&](const WriteResult&) {
    const MutexLock wait(gate);  // The only thread is busy until the gate opens.
  });
  std::vector<PostedWrite> writes(Transport::kOpenPostsMax + 2);
  for (const PostedWrite& write : writes) one_thread->Post(peer.address(), {}, Soon(), write.Done());
  gate.Unlock();
  EXPECT_TRUE(writes.front().Wait().status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(writes.back().Wait().status));
}

TEST(LocalIdentity, AddressIsReadBackAndNothingElseIs) {
  const LocalIdentity own = OwnIdentity().value();
  EXPECT_EQ(own.pid, getpid());
  EXPECT_GT(own.start_time, 0u);
  EXPECT_EQ(DecodeLocalIdentity(EncodeLocalIdentity(own)).value(), own);
  const std::string good = EncodeLocalIdentity(own);
  for (const std::string& bad :
       {std::string(), good + " ", good + "x", " " + good, "2" + good.substr(1), good.substr(0, good.size() - 2),
        std::string("1 -5 1 b p 1 1"), std::string("1 99999999999 1 b p 1 1"), std::string("1 5 1 b p 1")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeLocalIdentity(bad).status())) << bad;
  }
}

TEST(LocalTransport, OptionsOutOfRangeAreRefused) {
  const MonotonicClock clock;
  for (const int threads : {0, -1, 65}) {
    EXPECT_TRUE(absl::IsInvalidArgument(LocalTransport::Create({.threads = threads}, clock).status()));
  }
}

}  // namespace
}  // namespace tenure::transfer
