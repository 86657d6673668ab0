// The tcp transport against sockets that say what they like: strangers at its port, writers that break off, receivers
// that answer nonsense.
#include "tenure/transfer/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/address_frame.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/raw_socket_testing.h"
#include "tenure/transfer/tcp_address.h"
#include "tenure/transfer/tcp_message.h"
#include "tenure/transfer/tcp_receiver.h"
#include "tenure/transfer/transport_rig_testing.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kBytes = 1 << 20;

template <typename Head>
std::string Bytes(const Head& head) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head));
}

class TcpTransportTest : public ::testing::Test {
 protected:
  TcpTransportTest() {
    EXPECT_TRUE(prefill_->Register(source_.range()).ok());
    EXPECT_TRUE(decode_->Register(target_.range()).ok());
  }
  MonotonicTime Soon() const { return clock_.Now() + absl::Seconds(30); }
  TcpAddress DecodeAddress() const { return DecodeTcpAddress(decode_->Address().address).value(); }
  RawSocket Connect() const { return RawSocket(DecodeAddress().host, DecodeAddress().port); }
  std::string Greeting() const { return Bytes(TcpGreeting{.receiver = DecodeAddress().receiver}); }
  RawSocket Greeted() const {
    RawSocket raw = Connect();
    EXPECT_EQ(raw.Send(Greeting()), sizeof(TcpGreeting));
    EXPECT_EQ(raw.Receive(sizeof(TcpAnswer)), Bytes(TcpAnswer{kTcpGreeting, Verdict::kWritten}));
    return raw;
  }
  // From the source to the lower half of the target.
  WriteResult Write() {
    return WriteAndWait(*prefill_, decode_->Address(), {{source_.address(), target_.address(), kBytes}}, Soon());
  }
  bool LowerHalfArrived() const { return target_.ChecksumOf(0, kBytes) == source_.ChecksumOf(0, kBytes); }

  MonotonicClock clock_;
  const TestMemory source_ = TestMemory(kBytes, kSeed);
  const TestMemory target_ = TestMemory(2 * kBytes);
  std::unique_ptr<TcpTransport> prefill_ = TcpTransport::Create({}, clock_).value();
  std::unique_ptr<TcpTransport> decode_ = TcpTransport::Create({}, clock_).value();
};

TEST_F(TcpTransportTest, StrangersAndBrokenWritersDisturbNobody) {
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::deque<RawSocket> open;
  const uint64_t upper = target_.address() + kBytes;
  for (int64_t i = 0; i < RandomCases(1000); ++i) {
    RawSocket raw = Connect();
    std::string said;
    const uint64_t what = random.Below(8);
    if (what == 0) said = "GET /metrics HTTP/1.1\r\nHost: tenure\r\n\r\n";
    if (what == 1) {
      for (uint64_t size = random.Below(2000); size > 0; --size) said.push_back(static_cast<char>(random.Below(256)));
    }
    if (what == 2) said = Bytes(TcpGreeting{.receiver = random()});
    if (what >= 3) said = Greeting();
    if (what == 4) said += Bytes(TcpPart{random(), random(), random(), random()});
    if (what == 5) said += Bytes(TcpPart{1, upper, kBytes, kBytes}) + std::string(random.Below(100'000), 'x');
    if (what == 6) said += Bytes(TcpPart{1, upper, 10, 20}) + std::string(20'000, 'y');
    if (random.Chance(0.5)) said.resize(random.Below(said.size() + 1));
    (void)raw.Send(said);
    if (random.Chance(0.2)) raw.HalfClose();
    if (random.Chance(0.2)) raw.Reset();
    if (random.Chance(0.5)) open.push_back(std::move(raw));
    if (open.size() > 50) open.pop_front();
    if (i % 10 == 0) {
      const WriteResult result = Write();
      ASSERT_TRUE(result.status.ok()) << result.status;
    }
  }
  EXPECT_TRUE(LowerHalfArrived());
}

TEST_F(TcpTransportTest, SilentStrangersMakeRoomForWriters) {
  std::vector<RawSocket> silent;
  for (size_t i = 0; i < TcpReceiver::kStrangersMax + 50; ++i) silent.push_back(Connect());
  const WriteResult result = Write();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(silent.front().Ended());
}

TEST_F(TcpTransportTest, WritersBeyondTheMaximumAreRefusedUntilOneGoes) {
  const auto decode = TcpTransport::Create({.writers_max = 2}, clock_).value();
  ASSERT_TRUE(decode->Register(target_.range()).ok());
  const TcpAddress address = DecodeTcpAddress(decode->Address().address).value();
  const auto greeted = [&] {
    RawSocket raw(address.host, address.port);
    EXPECT_EQ(raw.Send(Bytes(TcpGreeting{.receiver = address.receiver})), sizeof(TcpGreeting));
    EXPECT_EQ(raw.Receive(sizeof(TcpAnswer)), Bytes(TcpAnswer{kTcpGreeting, Verdict::kWritten}));
    return raw;
  };
  const auto write = [&] {
    const std::vector<pd::WritePiece> piece = {{source_.address(), target_.address(), kBytes}};
    return WriteAndWait(*prefill_, decode->Address(), piece, Soon());
  };
  const RawSocket first = greeted();
  const RawSocket second = greeted();
  EXPECT_TRUE(RawSocket(address.host, address.port).Ended());
  EXPECT_TRUE(absl::IsUnavailable(write().status));
  first.HalfClose();
  EXPECT_TRUE(first.Ended());
  const WriteResult result = write();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(LowerHalfArrived());
}

TEST_F(TcpTransportTest, SilentStrangerIsClosedInTime) {
  ManualClock clock;
  const auto decode = TcpTransport::Create({}, clock).value();
  const TcpAddress address = DecodeTcpAddress(decode->Address().address).value();
  const RawSocket raw(address.host, address.port);
  (void)raw.Send("T");
  // Until it was taken, time does not count for it.
  while (!raw.Ended(absl::Milliseconds(50))) clock.Advance(TcpReceiver::kStrangerTime);
}

TEST_F(TcpTransportTest, RefusedWriterIsToldAndCannotWriteOn) {
  const RawSocket raw = Greeted();
  (void)raw.Send(Bytes(TcpPart{7, target_.address(), 4, 8}) + "abcd" +
                 Bytes(TcpPart{7, target_.address() + 2 * kBytes, 4, 8}) + "efgh" +
                 Bytes(TcpPart{8, target_.address() + 4, 4, 4}) + "ijkl");
  EXPECT_EQ(raw.Receive(sizeof(TcpAnswer)), Bytes(TcpAnswer{7, Verdict::kOutside}));
  EXPECT_TRUE(raw.Ended());
  EXPECT_EQ(target_.ChecksumOf(0, 8), Checksum("abcd\0\0\0", 8));
}

TEST_F(TcpTransportTest, WriterThatReadsNoAnswersIsNotReadFrom) {
  const RawSocket raw = Greeted();
  constexpr size_t kPosts = 2'000'000;  // With answers beyond what both sides' systems keep.
  constexpr size_t kPostBytes = sizeof(TcpPart) + 1;
  std::string stream;
  for (uint64_t post = 1; post <= 10'000; ++post) stream += Bytes(TcpPart{post, target_.address(), 1, 1}) + "x";
  size_t sent = 0;
  for (size_t idle = 0; sent < kPosts * kPostBytes && idle < 100;) {
    const size_t at = sent % stream.size();
    const size_t size = raw.Send(std::string_view(stream).substr(at));
    sent += size;
    idle = size > 0 ? 0 : idle + 1;
    if (size > 0) continue;
    // The transport may still be reading; a write that is answered says that it has had its turns.
    ASSERT_TRUE(Write().status.ok());
  }
  EXPECT_LT(sent, kPosts * kPostBytes);
  for (size_t whole = sent / kPostBytes; whole > 0;) {
    const size_t some = std::min<size_t>(whole, 1000);
    ASSERT_EQ(raw.Receive(some * sizeof(TcpAnswer)).size(), some * sizeof(TcpAnswer));
    whole -= some;
  }
}

TEST_F(TcpTransportTest, SlowReceiverDoesNotHoldUpOthers) {
  const TcpSocket listener = TcpSocket::Listen(ListenAddress("127.0.0.1").value()).value();
  const pd::TransportAddress slow = {"tcp", EncodeTcpAddress({"127.0.0.1", listener.port(), 1}), {{4096, kBytes, ""}}};
  std::vector<PostedWrite> stuck(20);
  for (const PostedWrite& write : stuck) {
    prefill_->Post(slow, {{source_.address(), 4096, kBytes}}, Soon(), write.Done());
  }
  const RawSocket raw(listener);
  EXPECT_EQ(raw.Receive(sizeof(TcpGreeting)), Bytes(TcpGreeting{.receiver = 1}));
  (void)raw.Send(Bytes(TcpAnswer{kTcpGreeting, Verdict::kWritten}));
  EXPECT_EQ(raw.Receive(4).size(), 4u);  // And nothing more.
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Write().status.ok());
  for (const PostedWrite& write : stuck) EXPECT_FALSE(write.done());
  raw.Reset();
  for (const PostedWrite& write : stuck) EXPECT_TRUE(absl::IsUnavailable(write.Wait().status)) << write.Wait().status;
}

TEST_F(TcpTransportTest, ReceiversThatAreNoneAreErrorsOfTheirPosts) {
  const std::string welcome = Bytes(TcpAnswer{kTcpGreeting, Verdict::kWritten});
  for (const std::string& answer :
       {std::string(), std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), welcome + welcome,
        Bytes(TcpAnswer{kTcpGreeting, Verdict(9)}), welcome + Bytes(TcpAnswer{1, Verdict(9)}) + std::string(1000, 'x'),
        Bytes(TcpAnswer{2, Verdict::kWritten}), welcome + Bytes(TcpAnswer{2, Verdict::kWritten})}) {
    const auto prefill = TcpTransport::Create({}, clock_).value();  // Its first post has the id 2.
    ASSERT_TRUE(prefill->Register(source_.range()).ok());
    const TcpSocket listener = TcpSocket::Listen(ListenAddress("127.0.0.1").value()).value();
    const PostedWrite write;
    prefill->Post({"tcp", EncodeTcpAddress({"127.0.0.1", listener.port(), 1}), {{4096, 1 << 30, ""}}},
                  std::vector<pd::WritePiece>(1000, {source_.address(), 4096, kBytes}), Soon(), write.Done());
    const RawSocket raw(listener);
    (void)raw.Send(answer);
    raw.HalfClose();
    EXPECT_TRUE(absl::IsUnavailable(write.Wait().status)) << answer << ": " << write.Wait().status;
    EXPECT_TRUE(write.Wait().settled || answer.starts_with(welcome)) << answer;
  }
}

TEST_F(TcpTransportTest, PortThatNobodyListensAtIsAnErrorAtOnce) {
  uint16_t port = 0;
  {
    const TcpSocket listener = TcpSocket::Listen(ListenAddress("127.0.0.1").value()).value();
    port = listener.port();
  }
  const WriteResult result =
      WriteAndWait(*prefill_, {"tcp", EncodeTcpAddress({"127.0.0.1", port, 1}), {{4096, kBytes, ""}}},
                   {{source_.address(), 4096, kBytes}}, clock_.Now() + absl::Hours(1));
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
}

TEST_F(TcpTransportTest, PeerThatNeverGreetsIsGivenUpBeforeALateDeadline) {
  ManualClock clock;
  const auto prefill = TcpTransport::Create({}, clock).value();
  ASSERT_TRUE(prefill->Register(source_.range()).ok());
  const TcpSocket listener = TcpSocket::Listen(ListenAddress("127.0.0.1").value()).value();
  const PostedWrite write;
  prefill->Post({"tcp", EncodeTcpAddress({"127.0.0.1", listener.port(), 1}), {{4096, kBytes, ""}}},
                {{source_.address(), 4096, kBytes}}, clock.Now() + absl::Hours(1), write.Done());
  const RawSocket raw(listener);
  EXPECT_EQ(raw.Receive(sizeof(TcpGreeting)).size(), sizeof(TcpGreeting));
  clock.Advance(TcpSocket::kSilenceMax);
  EXPECT_TRUE(absl::IsUnavailable(write.Wait().status)) << write.Wait().status;
  EXPECT_TRUE(write.Wait().settled);
}

TEST_F(TcpTransportTest, MemoryThatIsNotThereIsRefused) {
  const absl::Status status = prefill_->Register({{4096, 4096}});  // As a GPU's is to the kernel.
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("ucx transport for a GPU's"));
}

TEST_F(TcpTransportTest, OwnMemoryThatIsGoneIsAnErrorOfItsPost) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<uint64_t>(memory);
  ASSERT_TRUE(prefill_->Register({{address, kBytes}}).ok());
  munmap(memory, kBytes);
  const WriteResult result =
      WriteAndWait(*prefill_, decode_->Address(), {{address, target_.address() + kBytes, kBytes}}, Soon());
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_TRUE(Write().status.ok());
}

TEST(TcpAddress, ComesBackAsItWent) {
  const TcpAddress address = {.host = "fd00::2", .port = 65'535, .receiver = UINT64_MAX};
  EXPECT_EQ(DecodeTcpAddress(EncodeTcpAddress(address)).value(), address);
}

TEST(TcpAddress, WhatIsIncompleteIsRefused) {
  for (const char* text : {"1", "1 2", "1 2 ", "65536 2 h", "x 2 h", "1 -2 h"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeTcpAddress(FrameBytes("TTCP1", text)).status())) << text;
  }
}

}  // namespace
}  // namespace tenure::transfer
