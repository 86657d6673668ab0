// What UCX has of its own: writes and keys, its options, its addresses.
#include "tenure/transfer/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
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
