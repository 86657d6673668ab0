// Which way is taken to which peer, and what an address that lists several says.
#include "tenure/transfer/auto_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/local_transport.h"
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

constexpr uint64_t kBytes = 1 << 20;

// Counts what goes to the transport that it is in front of.
class CountedTransport final : public Transport {
 public:
  explicit CountedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  std::string_view kind() const override { return inner_->kind(); }
  absl::Status Register(const std::vector<MemoryRange>& ranges) override { return inner_->Register(ranges); }
  pd::TransportAddress Address() const override { return inner_->Address(); }
  absl::Status CanReach(const pd::TransportAddress& peer) override { return inner_->CanReach(peer); }
  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override {
    if (!pieces.empty()) ++posts;
    inner_->Post(peer, std::move(pieces), deadline, std::move(done));
  }

  int posts = 0;

 private:
  const std::unique_ptr<Transport> inner_;
};

// Says of itself what it is told to, and of every post that it was here.
class NamedTransport final : public Transport {
 public:
  static constexpr std::string_view kAnswer = "posted to ucx";
  explicit NamedTransport(std::string address) : address_(std::move(address)) {}
  std::string_view kind() const override { return UcxTransport::kKind; }
  absl::Status Register(const std::vector<MemoryRange>&) override { return absl::OkStatus(); }
  pd::TransportAddress Address() const override { return {std::string(kind()), address_, {}}; }
  absl::Status CanReach(const pd::TransportAddress&) override { return absl::OkStatus(); }
  void Post(const pd::TransportAddress&, std::vector<pd::WritePiece>, MonotonicTime, WriteDone done) override {
    done({Unavailable("{}", kAnswer), true});
  }

 private:
  const std::string address_;
};

class AutoTransportTest : public ::testing::Test {
 protected:
  AutoTransportTest() { EXPECT_TRUE(transport_.Register(source_.range()).ok()); }

  template <typename Kind>
  std::unique_ptr<CountedTransport> Counted(CountedTransport*& counted) {
    auto transport = std::make_unique<CountedTransport>(Kind::Create({}, clock_).value());
    counted = transport.get();
    return transport;
  }
  void ExpectWritten(Transport& from, PeerProcess& peer, const pd::TransportAddress& address) {
    const WriteResult result =
        WriteAndWait(from, address, {{source_.address(), peer.base(), kBytes}}, clock_.Now() + absl::Seconds(30));
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(peer.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
  }
  // The peer's address as one in another container would say it.
  static pd::TransportAddress Elsewhere(const pd::TransportAddress& peer) {
    std::vector<TransportOffer> offers = OffersOf(peer).value();
    LocalIdentity identity = DecodeLocalIdentity(offers[0].address).value();
    identity.pid_namespace += "x";
    offers[0].address = EncodeLocalIdentity(identity);
    if (peer.kind == LocalTransport::kKind) return {peer.kind, offers[0].address, peer.memory};
    return {peer.kind, EncodeOffers(offers), peer.memory};
  }

  MonotonicClock clock_;
  const TestMemory source_ = TestMemory(kBytes, 20261130);
  CountedTransport* local_ = nullptr;
  CountedTransport* tcp_ = nullptr;
  CountedTransport* ucx_ = nullptr;  // Once it has started.
  AutoTransport transport_{{.local = Counted<LocalTransport>(local_),
                            .tcp = Counted<TcpTransport>(tcp_),
                            .ucx = nullptr,
                            .start_ucx = [this] { return Counted<UcxTransport>(ucx_); }}};
};

TEST_F(AutoTransportTest, TakesLocalOnOneHost) {
  PeerProcess peer("auto", kBytes);
  ExpectWritten(transport_, peer, peer.address());
  EXPECT_EQ(local_->posts, 1);
  EXPECT_EQ(tcp_->posts, 0);
}

TEST_F(AutoTransportTest, TakesTcpWhereLocalIsRefused) {
  PeerProcess peer("auto", kBytes);
  ExpectWritten(transport_, peer, Elsewhere(peer.address()));
  EXPECT_EQ(local_->posts, 0);
  EXPECT_EQ(tcp_->posts, 1);
  EXPECT_EQ(ucx_, nullptr);
}

TEST_F(AutoTransportTest, TakesUcxWhereOneSidesMemoryIsAGpus) {
  PeerProcess peer("ucx", kBytes);
  pd::TransportAddress address = peer.address();
  UcxAddress ucx = DecodeUcxAddress(address.address).value();
  ucx.device_memory = true;
  // It would offer no tcp; with one that leads nowhere the way that is taken shows.
  address.address = EncodeOffers({{"tcp", EncodeTcpAddress({"127.0.0.1", 1, 1})}, {"ucx", EncodeUcxAddress(ucx)}});
  address.kind = kAutoKind;
  ExpectWritten(transport_, peer, address);
  ASSERT_NE(ucx_, nullptr);
  EXPECT_EQ(ucx_->posts, 1);
  EXPECT_EQ(tcp_->posts, 0);
}

TEST_F(AutoTransportTest, UcxIsTakenWhereBothHaveRdmaOnly) {
  std::string own = EncodeUcxAddress({.host = "127.0.0.1", .port = 1, .receiver = 1, .rdma = true});
  AutoTransport transport({.local = nullptr,
                           .tcp = Counted<TcpTransport>(tcp_),
                           .ucx = std::make_unique<NamedTransport>(own),
                           .start_ucx = nullptr});
  for (const bool theirs : {true, false}) {
    const std::string ucx = EncodeUcxAddress({.host = "127.0.0.1", .port = 2, .receiver = 2, .rdma = theirs});
    const std::string tcp = EncodeTcpAddress({"127.0.0.1", 2, 2});
    const PostedWrite write;
    transport.Post({std::string(kAutoKind), EncodeOffers({{"tcp", tcp}, {"ucx", ucx}}), {}}, {}, clock_.Now(),
                   write.Done());
    EXPECT_EQ(Message(write.Wait().status) == NamedTransport::kAnswer, theirs);
  }
}

TEST_F(AutoTransportTest, ReachesAndIsReachedByPeersWithOneTransportAlone) {
  for (const char* kind : {"local", "tcp", "ucx"}) {
    PeerProcess peer(kind, kBytes);
    ExpectWritten(transport_, peer, peer.address());
  }
  EXPECT_EQ(local_->posts, 1);
  EXPECT_EQ(tcp_->posts, 1);
  ASSERT_NE(ucx_, nullptr);
  EXPECT_EQ(ucx_->posts, 1);
  for (const char* kind : {"local", "tcp"}) {
    PeerProcess peer("auto", kBytes);
    const auto alone = CreateTransport(kind, "127.0.0.1", clock_).value();
    ASSERT_TRUE(alone->Register(source_.range()).ok());
    EXPECT_TRUE(alone->CanReach(peer.address()).ok());
    ExpectWritten(*alone, peer, peer.address());
  }
}

TEST_F(AutoTransportTest, WithoutUcxOnlyWhatNeedsItIsRefused) {
  AutoTransport transport({.local = nullptr, .tcp = Counted<TcpTransport>(tcp_), .ucx = nullptr, .start_ucx = [] {
                             return Unavailable("no libucp");
                           }});
  ASSERT_TRUE(transport.Register(source_.range()).ok());
  PeerProcess peer("auto", kBytes);
  ExpectWritten(transport, peer, peer.address());
  PeerProcess ucx("ucx", 4096);
  const absl::Status status = transport.CanReach(ucx.address());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the peer offers \"ucx\", and no libucp"));
  EXPECT_TRUE(absl::IsUnavailable(transport.Register({{4096, 4096}})));
}

TEST_F(AutoTransportTest, PeerThatOnlyOffersWhatIsRefusedIsAnErrorThatSaysWhy) {
  PeerProcess peer("local", 4096);
  const WriteResult result = WriteAndWait(transport_, Elsewhere(peer.address()),
                                          {{source_.address(), peer.base(), 4096}}, clock_.Now() + absl::Seconds(30));
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_THAT(std::string(Message(result.status)), HasSubstr("pid namespace"));
}

TEST_F(AutoTransportTest, NothingInCommonIsAnErrorThatListsBothSides) {
  AutoTransport only_local(
      {.local = LocalTransport::Create({}, clock_).value(), .tcp = nullptr, .ucx = nullptr, .start_ucx = nullptr});
  PeerProcess peer("tcp", 4096);
  const absl::Status status = only_local.CanReach(peer.address());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the peer offers \"tcp\", this side \"local\""));
}

TEST_F(AutoTransportTest, PeerThatIsGoneIsAnErrorOfLocal) {
  PeerProcess peer("auto", kBytes);
  peer.Kill();
  const WriteResult result = WriteAndWait(transport_, peer.address(), {{source_.address(), peer.base(), kBytes}},
                                          clock_.Now() + absl::Seconds(30));
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_EQ(tcp_->posts, 0);
}

TEST_F(AutoTransportTest, MemoryThatOnlyUcxCanReachTurnsTheOthersOff) {
  // What a GPU's memory is to the kernel: an address that nothing is mapped at.
  EXPECT_TRUE(absl::IsInvalidArgument(LocalTransport::Create({}, clock_).value()->Register({{4096, 4096}})));
  EXPECT_EQ(OffersOf(transport_.Address()).value().size(), 2u);
  const absl::Status status = transport_.Register({{4096, 4096}});
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<TransportOffer> offers = OffersOf(transport_.Address()).value();
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].kind, "ucx");
  EXPECT_EQ(transport_.Address().memory.size(), 2u);
  PeerProcess peer("ucx", kBytes);
  ExpectWritten(transport_, peer, peer.address());
  EXPECT_EQ(ucx_->posts, 1);
}

TEST(TransportOffers, AreReadBack) {
  const std::vector<TransportOffer> offers = {{"local", "a"}, {"ucx", std::string(70'000, '\0')}, {"", ""}};
  EXPECT_EQ(OffersOf({"auto", EncodeOffers(offers), {}}).value(), offers);
  EXPECT_TRUE(OffersOf({"auto", "", {}}).value().empty());
  const std::vector<TransportOffer> plain = {{"ucx", "anything"}};
  EXPECT_EQ(OffersOf({"ucx", "anything", {}}).value(), plain);
  EXPECT_EQ(KindsOf({{"local", "a"}, {"ucx", "b"}}), "\"local\", \"ucx\"");
  EXPECT_EQ(KindsOf({}), "none");
}

TEST(TransportOffers, CutOrTooManyAreRefused) {
  const std::string good = EncodeOffers({{"local", "abc"}});
  for (size_t size = 1; size < good.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(OffersOf({"auto", good.substr(0, size), {}}).status())) << size;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(OffersOf({"auto", "\x01x\xFF\xFF\xFF\xFF", {}}).status()));
  const std::vector<TransportOffer> many(kOffersMax + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(OffersOf({"auto", EncodeOffers(many), {}}).status()));
}

}  // namespace
}  // namespace tenure::transfer
