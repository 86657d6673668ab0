// UCX over TCP between two real processes: bytes, peers that die, stop and come back.
#include "tenure/transfer/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_frame.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kBytes = 20 << 20;

class UcxTransportTest : public ::testing::Test {
 protected:
  UcxTransportTest() { EXPECT_TRUE(transport_->Register(source_.range()).ok()); }
  MonotonicTime Soon() const { return clock_.Now() + absl::Seconds(30); }
  std::vector<pd::WritePiece> All(const PeerProcess& peer) const { return {{source_.address(), peer.base(), kBytes}}; }
  WriteResult WriteAll(const PeerProcess& peer) { return WriteAndWait(*transport_, peer.address(), All(peer), Soon()); }

  MonotonicClock clock_;
  const TestMemory source_ = TestMemory(kBytes, kSeed);
  std::unique_ptr<UcxTransport> transport_ = UcxTransport::Create({}, clock_).value();
};

TEST_F(UcxTransportTest, BytesArriveInAnotherProcess) {
  PeerProcess peer("ucx", kBytes);
  EXPECT_TRUE(transport_->CanReach(peer.address()).ok());
  const WriteResult result = WriteAll(peer);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(UcxTransportTest, ManySmallPiecesArriveBeforeTheAnswer) {
  PeerProcess peer("ucx", kBytes);
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

TEST_F(UcxTransportTest, SeveralPeersAreWrittenToAtOnce) {
  std::vector<std::unique_ptr<PeerProcess>> peers;
  std::vector<PostedWrite> writes(3);
  for (size_t i = 0; i < writes.size(); ++i) {
    peers.push_back(std::make_unique<PeerProcess>("ucx", kBytes));
    transport_->Post(peers[i]->address(), All(*peers[i]), Soon(), writes[i].Done());
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    EXPECT_TRUE(writes[i].Wait().status.ok()) << writes[i].Wait().status;
    EXPECT_EQ(peers[i]->ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
  }
}

TEST_F(UcxTransportTest, PeerKilledInTheMiddleIsAnErrorLongBeforeTheDeadline) {
  PeerProcess peer("ucx", kBytes);
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

TEST_F(UcxTransportTest, StoppedPeerRunsIntoTheDeadlineAndMayStillBeWritten) {
  PeerProcess peer("ucx", kBytes);
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

TEST_F(UcxTransportTest, PeerThatNeverAnsweredRunsIntoTheDeadline) {
  PeerProcess peer("ucx", kBytes);
  peer.Signal(SIGSTOP);
  const WriteResult result =
      WriteAndWait(*transport_, peer.address(), All(peer), clock_.Now() + absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  peer.Signal(SIGCONT);
  EXPECT_TRUE(WriteAll(peer).status.ok());
}

TEST_F(UcxTransportTest, PostWithAShortDeadlineDoesNotTakeItsNeighboursDown) {
  PeerProcess peer("ucx", kBytes);
  std::vector<PostedWrite> patient(20);
  const PostedWrite hasty;
  for (const PostedWrite& write : patient) transport_->Post(peer.address(), All(peer), Soon(), write.Done());
  transport_->Post(peer.address(), All(peer), clock_.Now() + absl::Milliseconds(1), hasty.Done());
  EXPECT_TRUE(absl::IsDeadlineExceeded(hasty.Wait().status)) << hasty.Wait().status;
  for (const PostedWrite& write : patient) EXPECT_TRUE(write.Wait().status.ok()) << write.Wait().status;
}

TEST_F(UcxTransportTest, RestartedPeerIsReachedAtItsNewAddressOnly) {
  auto peer = std::make_unique<PeerProcess>("ucx", kBytes);
  ASSERT_TRUE(WriteAll(*peer).status.ok());
  const pd::TransportAddress old = peer->address();
  peer.reset();
  peer = std::make_unique<PeerProcess>("ucx", kBytes);
  const WriteResult stale = WriteAndWait(*transport_, old, {{source_.address(), old.memory[0].base, kBytes}}, Soon());
  EXPECT_TRUE(absl::IsUnavailable(stale.status)) << stale.status;
  const WriteResult fresh = WriteAll(*peer);
  EXPECT_TRUE(fresh.status.ok()) << fresh.status;
  EXPECT_EQ(peer->ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(UcxTransportTest, PeerWhoseTransportWasMadeAnewIsReached) {
  PeerProcess peer("ucx", kBytes);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(WriteAll(peer).status.ok());
    peer.RenewTransport();
  }
  EXPECT_TRUE(WriteAll(peer).status.ok());
}

TEST_F(UcxTransportTest, EndsInTimeWhileAPeerIsStopped) {
  PeerProcess peer("ucx", kBytes);
  ASSERT_TRUE(WriteAll(peer).status.ok());
  peer.Signal(SIGSTOP);
  const PostedWrite write;
  transport_->Post(peer.address(), All(peer), Soon(), write.Done());
  transport_.reset();
  ASSERT_TRUE(write.done());
  EXPECT_TRUE(absl::IsUnavailable(write.Wait().status));
}

// What kills the receiver ends this process. While it connects a sender's death can do that (docs/operating/pd.md).
TEST_F(UcxTransportTest, ReceiverOutlivesSendersThatAreKilledWhileTheyWrite) {
  Random random(kSeed);
  TestMemory target(4 << 20);
  ASSERT_TRUE(transport_->Register(target.range()).ok());
  const int64_t senders = RandomCases(40);
  for (int64_t i = 0; i < senders; ++i) {
    PeerProcess sender("ucx", 4 << 20);
    sender.StartWrites(transport_->Address(), target.address(), 50);
    const MonotonicTime moment = clock_.Now() + absl::Microseconds(random.Below(1 << (i % 16)));
    while (clock_.Now() < moment) {
    }
    sender.Kill();
  }
  PeerProcess other("ucx", kBytes);
  EXPECT_TRUE(WriteAll(other).status.ok());
}

// The peer's address as if UCX's own writes were the way to it.
pd::TransportAddress AskingForWrites(pd::TransportAddress address) {
  UcxAddress own = DecodeUcxAddress(address.address).value();
  own.device_memory = true;
  address.address = EncodeUcxAddress(own);
  return address;
}

TEST_F(UcxTransportTest, BytesArriveByWritesToo) {
  PeerProcess peer("ucx", kBytes);
  const WriteResult result = WriteAndWait(*transport_, AskingForWrites(peer.address()), All(peer), Soon());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(UcxTransportTest, PeerKilledInTheMiddleOfWritesIsAnErrorToo) {
  PeerProcess peer("ucx", kBytes);
  std::vector<PostedWrite> writes(50);
  for (const PostedWrite& write : writes) {
    transport_->Post(AskingForWrites(peer.address()), All(peer), clock_.Now() + absl::Hours(1), write.Done());
  }
  peer.Kill();
  EXPECT_TRUE(absl::IsUnavailable(writes.back().Wait().status)) << writes.back().Wait().status;
}

TEST_F(UcxTransportTest, PeerRefusesWhatIsMeantForAnotherProcess) {
  PeerProcess peer("ucx", kBytes);
  pd::TransportAddress address = peer.address();
  UcxAddress own = DecodeUcxAddress(address.address).value();
  ++own.receiver;
  address.address = EncodeUcxAddress(own);
  const WriteResult result = WriteAndWait(*transport_, address, All(peer), Soon());
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_THAT(std::string(Message(result.status)), HasSubstr("another process has its port"));
  EXPECT_EQ(peer.ChecksumOf(0, kBytes), Checksum(std::vector<char>(kBytes).data(), kBytes));
}

TEST_F(UcxTransportTest, PeerRefusesWhatLiesOutsideOfItsMemory) {
  PeerProcess peer("ucx", 4096);
  pd::TransportAddress address = peer.address();
  address.memory[0].size = kBytes;  // More than it has.
  const WriteResult result = WriteAndWait(*transport_, address, {{source_.address(), peer.base(), kBytes}}, Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_THAT(std::string(Message(result.status)), HasSubstr("outside of the memory"));
  EXPECT_TRUE(WriteAndWait(*transport_, peer.address(), {{source_.address(), peer.base(), 4096}}, Soon()).status.ok());
}

TEST_F(UcxTransportTest, KeysThatDoNotFitAreRefused) {
  PeerProcess peer("ucx", 4096);
  for (const std::string& key : {std::string(), std::string("nonsense"), peer.address().memory[0].key + "x"}) {
    pd::TransportAddress address = AskingForWrites(peer.address());
    address.memory[0].key = key;
    const WriteResult result = WriteAndWait(*transport_, address, {{source_.address(), peer.base(), 4096}}, Soon());
    EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
    EXPECT_THAT(std::string(Message(result.status)), HasSubstr("memory key"));
    EXPECT_TRUE(result.settled);
  }
}

TEST(UcxTransport, TransportsThatDoNotExistAreAnError) {
  const MonotonicClock clock;
  const absl::Status status = UcxTransport::Create({.transports = "carrier_pigeon"}, clock).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(UcxTransport, HostsThatCannotBeListenedAtAreRefused) {
  const MonotonicClock clock;
  for (const char* host : {"0.0.0.0", "::", "no-such-host.invalid", ""}) {
    const absl::Status status = UcxTransport::Create({.host = host}, clock).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << host << ": " << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("host is"));
  }
}

TEST(UcxTransport, ListensAtTheNamedHostOnly) {
  const MonotonicClock clock;
  const auto transport = UcxTransport::Create({.host = "127.0.0.2"}, clock).value();
  EXPECT_EQ(DecodeUcxAddress(transport->Address().address).value().host, "127.0.0.2");
}

TEST(UcxAddress, ComesBackAsItWent) {
  const UcxAddress address = {.host = "fd00::2", .port = 65'535, .receiver = UINT64_MAX, .rdma = true};
  EXPECT_EQ(DecodeUcxAddress(EncodeUcxAddress(address)).value(), address);
}

TEST(UcxAddress, WhatIsIncompleteIsRefused) {
  for (const char* text : {"1", "1 2 0", "1 2 0 0 ", "65536 2 0 0 h", "x 2 0 0 h", "1 -2 0 0 h"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeUcxAddress(FrameUcxBytes(text)).status())) << text;
  }
}

TEST(UcxFrame, EveryChangedByteIsFound) {
  const std::string frame = FrameUcxBytes("an address");
  EXPECT_EQ(UnframeUcxBytes("address", frame).value(), "an address");
  for (size_t i = 0; i < frame.size(); ++i) {
    std::string changed = frame;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_TRUE(absl::IsInvalidArgument(UnframeUcxBytes("address", changed).status())) << i;
    EXPECT_FALSE(UnframeUcxBytes("address", frame.substr(0, i)).ok()) << i;
  }
}

}  // namespace
}  // namespace tenure::transfer
