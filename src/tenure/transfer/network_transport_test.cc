// The transports between hosts, each between two real processes: bytes, peers that die, stop and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/tcp_address.h"
#include "tenure/transfer/tcp_transport.h"
#include "tenure/transfer/transport_rig_testing.h"
#include "tenure/transfer/transports.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_transport.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kBytes = 20 << 20;

// The address of another transport at the same port.
template <typename Address>
std::string WithNextReceiver(Address address, std::string (*encode)(const Address&)) {
  ++address.receiver;
  return encode(address);
}

class NetworkTransport : public ::testing::TestWithParam<std::string_view> {
 protected:
  NetworkTransport() { EXPECT_TRUE(transport_->Register(source_.range()).ok()); }
  MonotonicTime Soon() const { return clock_.Now() + absl::Seconds(30); }
  std::vector<pd::WritePiece> All(const PeerProcess& peer) const { return {{source_.address(), peer.base(), kBytes}}; }
  WriteResult WriteAll(const PeerProcess& peer) { return WriteAndWait(*transport_, peer.address(), All(peer), Soon()); }

  MonotonicClock clock_;
  const TestMemory source_ = TestMemory(kBytes, kSeed);
  std::unique_ptr<Transport> transport_ = CreateTransport(GetParam(), "127.0.0.1", clock_).value();
};

TEST_P(NetworkTransport, BytesArriveInAnotherProcess) {
  PeerProcess peer(GetParam(), kBytes);
  EXPECT_TRUE(transport_->CanReach(peer.address()).ok());
  const WriteResult result = WriteAll(peer);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_P(NetworkTransport, ManySmallPiecesArriveBeforeTheAnswer) {
  PeerProcess peer(GetParam(), kBytes);
  constexpr uint64_t kPieces = 10'000;
  std::vector<unsigned char> expected(kPieces * 2000);
  std::vector<pd::WritePiece> pieces;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const uint64_t from = (kPieces - 1 - i) * 1000;
    const uint64_t size = 1 + i % 1000;
    pieces.push_back({source_.address() + from, peer.base() + i * 2000, size});
    std::copy_n(source_.bytes().begin() + static_cast<int64_t>(from), size,
                expected.begin() + static_cast<int64_t>(i * 2000));
  }
  const WriteResult result = WriteAndWait(*transport_, peer.address(), pieces, Soon());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(peer.ChecksumOf(0, expected.size()), Checksum(expected.data(), expected.size()));
}

TEST_P(NetworkTransport, SeveralPeersAreWrittenToAtOnce) {
  std::vector<std::unique_ptr<PeerProcess>> peers;
  std::vector<PostedWrite> writes(3);
  for (size_t i = 0; i < writes.size(); ++i) {
    peers.push_back(std::make_unique<PeerProcess>(GetParam(), kBytes));
    transport_->Post(peers[i]->address(), All(*peers[i]), Soon(), writes[i].Done());
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    EXPECT_TRUE(writes[i].Wait().status.ok()) << writes[i].Wait().status;
    EXPECT_EQ(peers[i]->ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
  }
}

TEST_P(NetworkTransport, PeerKilledInTheMiddleIsAnErrorLongBeforeTheDeadline) {
  PeerProcess peer(GetParam(), kBytes);
  ASSERT_TRUE(WriteAll(peer).status.ok());
  std::vector<PostedWrite> writes(50);
  const MonotonicTime deadline = clock_.Now() + absl::Hours(1);
  for (const PostedWrite& write : writes) {
    transport_->Post(peer.address(), All(peer), deadline, write.Done());
  }
  ASSERT_TRUE(writes.front().Wait().status.ok());
  peer.Kill();
  for (const PostedWrite& write : writes) {
    const WriteResult result = write.Wait();  // Waits for a minute at most.
    EXPECT_TRUE(result.status.ok() || absl::IsUnavailable(result.status)) << result.status;
  }
  EXPECT_TRUE(absl::IsUnavailable(writes.back().Wait().status));
}

TEST_P(NetworkTransport, StoppedPeerRunsIntoTheDeadlineAndMayStillBeWritten) {
  PeerProcess peer(GetParam(), kBytes);
  ASSERT_TRUE(WriteAll(peer).status.ok());
  peer.Signal(SIGSTOP);
  const WriteResult result =
      WriteAndWait(*transport_, peer.address(), All(peer), clock_.Now() + absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_FALSE(result.settled);
  peer.Signal(SIGCONT);
  const WriteResult again = WriteAll(peer);  // Over a new connection.
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_P(NetworkTransport, PeerThatNeverAnsweredRunsIntoTheDeadline) {
  PeerProcess peer(GetParam(), kBytes);
  peer.Signal(SIGSTOP);
  const WriteResult result =
      WriteAndWait(*transport_, peer.address(), All(peer), clock_.Now() + absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  peer.Signal(SIGCONT);
  EXPECT_TRUE(WriteAll(peer).status.ok());
}

TEST_P(NetworkTransport, PostWithAShortDeadlineDoesNotTakeItsNeighboursDown) {
  PeerProcess peer(GetParam(), kBytes);
  std::vector<PostedWrite> patient(20);
  const PostedWrite hasty;
  for (const PostedWrite& write : patient) transport_->Post(peer.address(), All(peer), Soon(), write.Done());
  transport_->Post(peer.address(), All(peer), clock_.Now() + absl::Milliseconds(1), hasty.Done());
  EXPECT_TRUE(absl::IsDeadlineExceeded(hasty.Wait().status)) << hasty.Wait().status;
  for (const PostedWrite& write : patient) EXPECT_TRUE(write.Wait().status.ok()) << write.Wait().status;
}

TEST_P(NetworkTransport, RestartedPeerIsReachedAtItsNewAddressOnly) {
  auto peer = std::make_unique<PeerProcess>(GetParam(), kBytes);
  ASSERT_TRUE(WriteAll(*peer).status.ok());
  const pd::TransportAddress old = peer->address();
  peer.reset();
  peer = std::make_unique<PeerProcess>(GetParam(), kBytes);
  const WriteResult stale = WriteAndWait(*transport_, old, {{source_.address(), old.memory[0].base, kBytes}}, Soon());
  EXPECT_TRUE(absl::IsUnavailable(stale.status)) << stale.status;
  const WriteResult fresh = WriteAll(*peer);
  EXPECT_TRUE(fresh.status.ok()) << fresh.status;
  EXPECT_EQ(peer->ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_P(NetworkTransport, PeerWhoseTransportWasMadeAnewIsReached) {
  PeerProcess peer(GetParam(), kBytes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(WriteAll(peer).status.ok());
    peer.RenewTransport();
  }
  EXPECT_TRUE(WriteAll(peer).status.ok());
}

TEST_P(NetworkTransport, EndsInTimeWhileAPeerIsStopped) {
  PeerProcess peer(GetParam(), kBytes);
  ASSERT_TRUE(WriteAll(peer).status.ok());
  peer.Signal(SIGSTOP);
  const PostedWrite write;
  transport_->Post(peer.address(), All(peer), Soon(), write.Done());
  transport_.reset();
  ASSERT_TRUE(write.done());
  EXPECT_TRUE(absl::IsUnavailable(write.Wait().status));
}

// What kills the receiver ends this process. While it connects a sender's death can do that (docs/operating/pd.md).
TEST_P(NetworkTransport, ReceiverOutlivesSendersThatAreKilledWhileTheyWrite) {
  Random random(kSeed);
  TestMemory target(4 << 20);
  ASSERT_TRUE(transport_->Register(target.range()).ok());
  const int64_t senders = RandomCases(GetParam() == TcpTransport::kKind ? 300 : 40);
  for (int64_t i = 0; i < senders; ++i) {
    PeerProcess sender(GetParam(), 4 << 20);
    sender.StartWrites(transport_->Address(), target.address(), 50);
    const MonotonicTime moment = clock_.Now() + absl::Microseconds(random.Below(1 << (i % 16)));
    while (clock_.Now() < moment) {
    }
    sender.Kill();
  }
  PeerProcess other(GetParam(), kBytes);
  EXPECT_TRUE(WriteAll(other).status.ok());
}

TEST_P(NetworkTransport, PeerRefusesWhatIsMeantForAnotherProcess) {
  PeerProcess peer(GetParam(), kBytes);
  pd::TransportAddress address = peer.address();
  address.address = GetParam() == TcpTransport::kKind
                        ? WithNextReceiver(DecodeTcpAddress(address.address).value(), EncodeTcpAddress)
                        : WithNextReceiver(DecodeUcxAddress(address.address).value(), EncodeUcxAddress);
  const WriteResult result = WriteAndWait(*transport_, address, All(peer), Soon());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_THAT(std::string(Message(result.status)), HasSubstr("another process has its port"));
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), Checksum(std::vector<char>(kBytes).data(), kBytes));
}

TEST_P(NetworkTransport, PeerRefusesWhatLiesOutsideOfItsMemory) {
  PeerProcess peer(GetParam(), 4096);
  pd::TransportAddress address = peer.address();
  address.memory[0].size = kBytes;  // More than it has.
  const WriteResult result = WriteAndWait(*transport_, address, {{source_.address(), peer.base(), kBytes}}, Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_THAT(std::string(Message(result.status)), HasSubstr("outside of the memory"));
  EXPECT_TRUE(WriteAndWait(*transport_, peer.address(), {{source_.address(), peer.base(), 4096}}, Soon()).status.ok());
}

TEST_P(NetworkTransport, HostsThatCannotBeListenedAtAreRefused) {
  for (const char* host : {"0.0.0.0", "::", "no-such-host.invalid", ""}) {
    const absl::Status status = CreateTransport(GetParam(), host, clock_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << host << ": " << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("host is"));
  }
}

TEST_P(NetworkTransport, ListensAtTheNamedHostOnly) {
  const std::string address = CreateTransport(GetParam(), "127.0.0.2", clock_).value()->Address().address;
  EXPECT_EQ(GetParam() == TcpTransport::kKind ? DecodeTcpAddress(address).value().host
                                              : DecodeUcxAddress(address).value().host,
            "127.0.0.2");
}

INSTANTIATE_TEST_SUITE_P(Transports, NetworkTransport, ::testing::Values(TcpTransport::kKind, UcxTransport::kKind),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tenure::transfer
