// The bytes of the wire, which must not change within a major version (docs/reference/daemon-wire.md), and what
// malformed ones do.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/wire_messages.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {
namespace {

std::string Hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

template <typename M>
std::string Frame(const M& message, uint32_t request = 1) {
  std::vector<std::byte> bytes;
  AppendFrame(message, request, bytes);
  return Hex(bytes);
}

template <typename M>
std::vector<std::byte> Body(const M& message) {
  std::vector<std::byte> bytes;
  AppendFrame(message, 1, bytes);
  return {bytes.begin() + FrameHeader::kBytes, bytes.end()};
}

store::ObjectKey SmallKey(uint32_t name_space, uint8_t first) {
  std::array<uint8_t, 16> hash{};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] = static_cast<uint8_t>(first + i);
  return {.name_space = store::NamespaceId(name_space), .hash = kv::BlockHash::FromTrusted(hash)};
}

TEST(WireGolden, Hello) {
  EXPECT_EQ(Frame(HelloRequest()),
            "08000000"
            "0100"
            "0000"
            "01000000"
            "544e5552"
            "0100"
            "0000");
  EXPECT_EQ(
      Frame(HelloReply{.closed = 1, .memory_bytes = 0x1122334455, .held_bytes_max = 256, .object_bytes_max = 3}, 7),
      "1d000000"
      "0180"
      "0000"
      "07000000"
      "0100"
      "0000"
      "01"
      "5544332211000000"
      "0001000000000000"
      "0300000000000000");
}

TEST(WireGolden, KeysAndAnswers) {
  EXPECT_EQ(Frame(OpenNamespaceRequest{.prefix = "ab"}),
            "04000000"
            "0200"
            "0000"
            "01000000"
            "0200"
            "6162");
  EXPECT_EQ(Frame(ProbeRequest{.keys = {SmallKey(5, 0x10)}}),
            "19000000"
            "0300"
            "0000"
            "01000000"
            "01000000"
            "05000000"
            "10"
            "101112131415161718191a1b1c1d1e1f");
  EXPECT_EQ(Frame(ProbeReply{.answers = {store::KeyAnswer::kPresent, store::KeyAnswer::kAbsent}}),
            "06000000"
            "0380"
            "0000"
            "01000000"
            "02000000"
            "00"
            "01");
  EXPECT_EQ(Frame(LeaseRequest{.ttl_nanoseconds = 1'000'000'000, .keys = {}}),
            "0c000000"
            "0400"
            "0000"
            "01000000"
            "00ca9a3b00000000"
            "00000000");
  EXPECT_EQ(Frame(LeaseReply{.lease = 9, .answers = {store::KeyAnswer::kPresent}}),
            "0d000000"
            "0480"
            "0000"
            "01000000"
            "0900000000000000"
            "01000000"
            "00");
  EXPECT_EQ(Frame(ReleaseLeaseRequest{.leases = {9}}),
            "0c000000"
            "0500"
            "0000"
            "01000000"
            "01000000"
            "0900000000000000");
}

TEST(WireGolden, PutAndGet) {
  ReserveObject object{.key = SmallKey(1, 0),
                       .size = 4096,
                       .kind = store::ObjectKind::kState,
                       .has_parent = 1,
                       .parent = SmallKey(2, 0x20)};
  EXPECT_EQ(Frame(ReserveRequest{.objects = {object}}),
            "38000000"
            "0600"
            "0000"
            "01000000"
            "01000000"
            "01000000"
            "10"
            "000102030405060708090a0b0c0d0e0f"
            "0010000000000000"
            "02"
            "01"
            "02000000"
            "10"
            "202122232425262728292a2b2c2d2e2f");
  EXPECT_EQ(Frame(ReserveReply{.batch = 3, .places = {{.answer = store::PutAnswer::kBusy, .offset = kNoOffset}}}),
            "15000000"
            "0680"
            "0000"
            "01000000"
            "0300000000000000"
            "01000000"
            "03"
            "ffffffffffffffff");
  EXPECT_EQ(Frame(CommitRequest{.batch = 3, .objects = {{.ordinal = 2, .digest = 0xABCD}}}),
            "18000000"
            "0700"
            "0000"
            "01000000"
            "0300000000000000"
            "01000000"
            "02000000"
            "cdab000000000000");
  EXPECT_EQ(Frame(CommitReply{.answers = {store::PutAnswer::kWaiting}}),
            "05000000"
            "0780"
            "0000"
            "01000000"
            "01000000"
            "04");
  EXPECT_EQ(Frame(AbandonRequest{.batch = 3}),
            "08000000"
            "0800"
            "0000"
            "01000000"
            "0300000000000000");
  EXPECT_EQ(Frame(PinReply{.batch = 4,
                           .places = {{.answer = store::KeyAnswer::kPresent, .offset = 16, .size = 2, .digest = 1}}}),
            "25000000"
            "0980"
            "0000"
            "01000000"
            "0400000000000000"
            "01000000"
            "00"
            "1000000000000000"
            "0200000000000000"
            "0100000000000000");
  EXPECT_EQ(Frame(UnpinRequest{.batch = 4, .corrupt = {2}}),
            "10000000"
            "0a00"
            "0000"
            "01000000"
            "0400000000000000"
            "01000000"
            "02000000");
}

TEST(WireGolden, TheRest) {
  EXPECT_EQ(Frame(RemoveRequest()),
            "04000000"
            "0b00"
            "0000"
            "01000000"
            "00000000");
  EXPECT_EQ(Frame(ClearRequest{.one_namespace = 1, .name_space = 6}),
            "05000000"
            "0c00"
            "0000"
            "01000000"
            "01"
            "06000000");
  EXPECT_EQ(Frame(ClearReply{.objects = 7}),
            "08000000"
            "0c80"
            "0000"
            "01000000"
            "0700000000000000");
  EXPECT_EQ(Frame(StatsRequest()),
            "00000000"
            "0d00"
            "0000"
            "01000000");
  EXPECT_EQ(Frame(ErrorReply{.code = ErrorCode::kVersion, .text = "no"}),
            "05000000"
            "ff7f"
            "0000"
            "01000000"
            "05"
            "0200"
            "6e6f");
}

TEST(WireGolden, StatsKeepTheirOrder) {
  StatsReply reply;
  int64_t next = 1;
  VisitPoolStats(reply.stats, [&next](const MetricInfo&, auto& figure) {
    figure = std::remove_reference_t<decltype(figure)>(next);
    ++next;
  });
  EXPECT_EQ(next - 1, 35) << "a figure was added: it goes to the end of the list and into the wire's page";
  EXPECT_EQ(sizeof(store::PoolStats), 35 * sizeof(int64_t)) << "a figure is missing from the list";
  EXPECT_EQ(reply.stats.capacity, Bytes(1));
  EXPECT_EQ(reply.stats.held.leased, 5);
  EXPECT_EQ(reply.stats.refused_by.parents, 35);
  StatsReply back;
  ASSERT_TRUE(DecodeBody(Body(reply), back));
  EXPECT_EQ(back.stats.refused_by.parents, 35);
  EXPECT_EQ(back.stats.evicted_bytes_total, reply.stats.evicted_bytes_total);
}

TEST(Wire, LongestMessagesFitTheFrame) {
  std::array<uint8_t, 32> hash{};
  const store::ObjectKey key{.name_space = store::NamespaceId(1), .hash = kv::BlockHash::FromTrusted(hash)};
  ReserveRequest reserve;
  reserve.objects.assign(kReserveObjectsMax,
                         {.key = key, .size = 1, .kind = store::ObjectKind::kFull, .has_parent = 1, .parent = key});
  EXPECT_LE(Body(reserve).size(), kBodyBytesMax);
  LeaseRequest lease;
  lease.keys.assign(kMessageKeysMax, key);
  EXPECT_LE(Body(lease).size(), kBodyBytesMax);
  PinReply pins;
  pins.places.resize(kMessageKeysMax);
  EXPECT_LE(Body(pins).size(), kBodyBytesMax);
}

TEST(Wire, HeaderAboveTheMaximumIsRefusedBeforeItsBodyIsRead) {
  const std::vector<std::byte> bytes(FrameHeader::kBytes, std::byte{0xFF});
  EXPECT_TRUE(absl::IsDataLoss(ParseHeader(bytes).status()));
  EXPECT_FALSE(ParseHeader(std::span(bytes).first(11)).value().has_value());
}

TEST(Wire, CountsBeyondTheBytesTakeNoMemory) {
  std::vector<std::byte> body(4, std::byte{0});
  body[1] = std::byte{0x40};  // 16,384 keys, no bytes.
  ProbeRequest probe;
  EXPECT_FALSE(DecodeBody(body, probe));
  EXPECT_EQ(probe.keys.capacity(), 0u);
}

TEST(Wire, EveryCutOfAMessageIsMalformed) {
  const ReserveObject object{
      .key = SmallKey(1, 0), .size = 1, .kind = store::ObjectKind::kFull, .has_parent = 1, .parent = SmallKey(1, 1)};
  const std::vector<std::byte> body = Body(ReserveRequest{.objects = {object, object}});
  ReserveRequest decoded;
  ASSERT_TRUE(DecodeBody(body, decoded));
  EXPECT_EQ(decoded.objects[1].parent, object.parent);
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(DecodeBody(std::span(body).first(size), decoded)) << size;
  }
  std::vector<std::byte> longer = body;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(DecodeBody(longer, decoded));
}

TEST(Wire, HashOfAnotherSizeIsMalformed) {
  std::vector<std::byte> body = Body(ProbeRequest{.keys = {SmallKey(1, 0)}});
  body[8] = std::byte{15};
  ProbeRequest probe;
  EXPECT_FALSE(DecodeBody(body, probe));
}

TEST(Wire, ErrorsKeepTheirTextAndUnknownCodesAreErrorsToo) {
  EXPECT_TRUE(absl::IsInvalidArgument(ToStatus({.code = ErrorCode::kInvalidArgument, .text = "a"})));
  EXPECT_TRUE(absl::IsFailedPrecondition(ToStatus({.code = ErrorCode::kVersion, .text = "a"})));
  const absl::Status unknown = ToStatus({.code = static_cast<ErrorCode>(200), .text = "text"});
  EXPECT_FALSE(unknown.ok());
  EXPECT_THAT(std::string(Message(unknown)), ::testing::HasSubstr("text"));
}

}  // namespace
}  // namespace tenure::daemon
