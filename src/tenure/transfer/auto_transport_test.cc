// Which way is taken to which peer, and what an address that lists several says.
#include "tenure/transfer/auto_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/local_transport.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"
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
  CountedTransport* ucx_ = nullptr;
  AutoTransport transport_{Counted<LocalTransport>(local_), Counted<UcxTransport>(ucx_)};
};

TEST_F(AutoTransportTest, TakesLocalOnOneHost) {
  PeerProcess peer("auto", kBytes);
  ExpectWritten(transport_, peer, peer.address());
  EXPECT_EQ(local_->posts, 1);
  EXPECT_EQ(ucx_->posts, 0);
}

TEST_F(AutoTransportTest, TakesUcxWhereLocalIsRefused) {
  PeerProcess peer("auto", kBytes);
  ExpectWritten(transport_, peer, Elsewhere(peer.address()));
  EXPECT_EQ(local_->posts, 0);
  EXPECT_EQ(ucx_->posts, 1);
}

TEST_F(AutoTransportTest, ReachesAndIsReachedByPeersWithOneTransportAlone) {
  PeerProcess local("local", kBytes);
  ExpectWritten(transport_, local, local.address());
  EXPECT_EQ(local_->posts, 1);
  PeerProcess ucx("ucx", kBytes);
  ExpectWritten(transport_, ucx, ucx.address());
  EXPECT_EQ(ucx_->posts, 1);
  for (const bool with_local : {true, false}) {
    PeerProcess both("auto", kBytes);
    std::unique_ptr<Transport> alone;
    if (with_local) alone = LocalTransport::Create({}, clock_).value();
    if (!with_local) alone = UcxTransport::Create({}, clock_).value();
    ASSERT_TRUE(alone->Register(source_.range()).ok());
    EXPECT_TRUE(alone->CanReach(both.address()).ok());
    ExpectWritten(*alone, both, both.address());
  }
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
  AutoTransport only_local(LocalTransport::Create({}, clock_).value(), nullptr);
  PeerProcess peer("ucx", 4096);
  const absl::Status status = only_local.CanReach(peer.address());
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the peer offers \"ucx\", this side \"local\""));
}

TEST_F(AutoTransportTest, PeerThatIsGoneIsAnErrorOfLocal) {
  PeerProcess peer("auto", kBytes);
  peer.Kill();
  const WriteResult result = WriteAndWait(transport_, peer.address(), {{source_.address(), peer.base(), kBytes}},
                                          clock_.Now() + absl::Seconds(30));
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_EQ(ucx_->posts, 0);
}

TEST_F(AutoTransportTest, MemoryThatLocalCannotReachTurnsItOff) {
  // What a GPU's memory is to the kernel: an address that nothing is mapped at.
  EXPECT_TRUE(absl::IsInvalidArgument(LocalTransport::Create({}, clock_).value()->Register({{4096, 4096}})));
  EXPECT_EQ(OffersOf(transport_.Address()).value().size(), 2u);
  const absl::Status status = transport_.Register({{4096, 4096}});
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<TransportOffer> offers = OffersOf(transport_.Address()).value();
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].kind, "ucx");
  EXPECT_EQ(transport_.Address().memory.size(), 2u);
  PeerProcess peer("auto", kBytes);
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
