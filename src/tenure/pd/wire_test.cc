// The three messages against the bytes that msgspec writes, and what becomes of bytes that are none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/pd/golden_wire_testing.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/msgpack_writer.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace tenure::pd {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

Pull SteadyPull() {
  Pull pull;
  pull.remote_hostname = "10.0.0.2";
  pull.remote_port = 15432;
  pull.remote_tp_size = 2;
  pull.remote_tp_rank = 1;
  pull.requests = {{"req-1", "xfer-a", {{1, 2, 300}, {70000}}}};
  pull.kv_caches_base_addr = {140000000000000, (uint64_t{1} << 63) + 5};
  pull.block_lens = {65536, 128};
  pull.kv_block_lens = {65536, 100};
  return pull;
}

Pull PullWithEveryField() {
  Pull pull;
  pull.remote_hostname = "fd00::2";
  pull.remote_port = 65535;
  pull.remote_tp_size = 4;
  pull.remote_tp_rank = 3;
  pull.requests = {
      {"req-2", "xfer-b", {{}, {5}}},
      {"req-1", "xfer-\u00e4\u20ac\U0001f600", {{0, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296}}}};
  pull.kv_caches_base_addr = {1, 2};
  pull.block_lens = {4096, 8192};
  pull.kv_block_lens = {4096, 8000};
  pull.registered_layer_names = {"model.layers.0", "model.layers.1"};
  pull.registered_layer_indices = {0, 1};
  pull.registered_group_indices = {-1, 1};
  pull.registered_shared_group_ids = {{0, 1}, {}};
  pull.registered_row_offsets = {-1, -32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649, INT64_MIN};
  pull.remote_pp_size = 2;
  pull.kv_lease_duration = 30.0;
  pull.remote_pp_rank = 1;
  pull.transport.kind = "ucx";
  for (int byte = 0; byte < 256; ++byte) pull.transport.address.push_back(static_cast<char>(byte));
  pull.transport.memory = {{4096, 65536, ""}, {(uint64_t{1} << 63) + 4096, uint64_t{1} << 32, ""}};
  for (int i = 0; i < 5; ++i) pull.transport.memory[1].key += "\x00\xFF"s;
  pull.answer_within = 540.5;
  return pull;
}

Pull PullOfOneHost() {
  Pull pull;
  pull.remote_hostname = "d";
  pull.remote_port = 1;
  pull.remote_tp_size = 2;
  pull.kv_caches_base_addr = {4096};
  pull.block_lens = {1};
  pull.kv_block_lens = {1};
  pull.registered_layer_names = {"n"};
  pull.registered_layer_indices = {0};
  pull.registered_group_indices = {0};
  pull.registered_shared_group_ids = {{0}};
  pull.registered_row_offsets = {-1};
  pull.remote_pp_size = 2;
  pull.kv_lease_duration = 30.0;
  pull.remote_pp_rank = 1;
  pull.transport = {"local", "\x01", {{4096, 1, ""}}};
  return pull;
}

Pull LongPull() {
  Pull pull;
  pull.remote_hostname = std::string(40, 'h');
  pull.remote_port = 1;
  pull.remote_tp_size = 1;
  for (int64_t i = 0; i < 20; ++i) {
    PullRequest request = {fmt::format("req-{:03}", i), fmt::format("xfer-{:03}", i), {{}}};
    for (int64_t block = i; block < i + 20; ++block) request.blocks[0].push_back(block);
    pull.requests.push_back(request);
  }
  pull.kv_caches_base_addr.assign(16, 7);
  pull.block_lens.assign(16, 8);
  pull.kv_block_lens.assign(16, 8);
  pull.registered_layer_names = {std::string(300, 'n')};
  return pull;
}

Pull ReleaseOnlyPull() {
  Pull pull;
  pull.remote_hostname = "d";
  pull.remote_port = 1;
  pull.remote_tp_size = 1;
  pull.requests = {{"r", "x", {}}};
  pull.kv_caches_base_addr = {0};
  pull.block_lens = {1};
  pull.kv_block_lens = {1};
  return pull;
}

void ExpectPull(std::string_view name, const Pull& pull) {
  SCOPED_TRACE(name);
  const std::string golden = GoldenMessage(name);
  const auto encoded = EncodePull(pull);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(*encoded, golden);
  const auto decoded = DecodePull(golden);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, pull);
}

TEST(PdWire, PullsAreTheBytesThatMsgspecWrites) {
  ExpectPull("pull_smallest", Pull());
  ExpectPull("pull_steady", SteadyPull());
  ExpectPull("pull_release_only", ReleaseOnlyPull());
  ExpectPull("pull_every_field", PullWithEveryField());
  ExpectPull("pull_of_one_host", PullOfOneHost());
  ExpectPull("pull_long_lists", LongPull());
}

void ExpectReply(std::string_view name, const Reply& reply) {
  SCOPED_TRACE(name);
  const auto encoded = EncodeReply(reply);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(*encoded, GoldenMessage(name));
  const auto decoded = DecodeReply(*encoded);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, reply);
}

TEST(PdWire, RepliesAreTheBytesThatMsgspecWrites) {
  ExpectReply("reply_smallest", {});
  EXPECT_EQ(GoldenMessage("reply_smallest"), "\x81\xa6status\0"s);
  ExpectReply("reply_continue", {ReplyStatus::kContinue, {"req-1", "req-2"}, {}, std::nullopt, {}});
  ExpectReply("reply_failed_requests",
              {ReplyStatus::kFinish, {"req-1"}, {"req-2"}, "Timeout waiting for P side ready.", {}});
  ExpectReply("reply_error", {ReplyStatus::kError, {}, {}, "kv_lease_duration differs", {}});
  ExpectReply("reply_unknown_transfers", {ReplyStatus::kFinish, {}, {}, std::nullopt, {"xfer-a"}});
}

void ExpectRenewal(std::string_view name, const Renewal& renewal) {
  SCOPED_TRACE(name);
  const auto encoded = EncodeRenewal(renewal);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(*encoded, GoldenMessage(name));
  const auto decoded = DecodeRenewal(*encoded);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, renewal);
}

TEST(PdWire, RenewalsAreTheBytesThatMsgspecWrites) {
  ExpectRenewal("renewal_empty", {});
  ExpectRenewal("renewal_of_two", {{"xfer-a", "xfer-b"}, 30.0});
  Renewal many = {{}, 0.5};
  for (int i = 0; i < 128; ++i) many.transfer_ids.push_back(fmt::format("xfer-{:036}", i));
  ExpectRenewal("renewal_of_128", many);
}

TEST(PdWire, FirstKeyDecidesWhatIsARenewal) {
  EXPECT_TRUE(IsRenewal(GoldenMessage("renewal_of_two")));
  EXPECT_TRUE(IsRenewal(GoldenMessage("renewal_of_128")));
  for (const char* other : {"renewal_empty", "pull_smallest", "pull_every_field", "reply_smallest"}) {
    EXPECT_FALSE(IsRenewal(GoldenMessage(other))) << other;
  }
  EXPECT_FALSE(IsRenewal(""));
  EXPECT_FALSE(IsRenewal("\x81\xb2renew_transfer"));
  EXPECT_FALSE(IsRenewal("\xDF\xFF\xFF\xFF\xFF\xB2renew_transfer_ids"s));
}

TEST(PdWire, PullDecodesAsAnEmptyRenewal) {
  const auto renewal = DecodeRenewal(GoldenMessage("pull_every_field"));
  ASSERT_TRUE(renewal.ok()) << renewal.status();
  EXPECT_TRUE(renewal->transfer_ids.empty());
}

TEST(PdWire, RenewalIsRefusedAsAPull) {
  const auto pull = DecodePull(GoldenMessage("renewal_of_two"));
  EXPECT_TRUE(absl::IsInvalidArgument(pull.status()));
  EXPECT_THAT(std::string(Message(pull.status())), HasSubstr("remote_hostname is missing"));
}

// A map with everything that MessagePack has, as a field that no version of ours knows.
std::string WithUnknownFields(const std::string& golden) {
  const std::string unknown =
      "\xA3"
      "new\xDC\x00\x0F"s                                // A list of 15:
      "\xC0\xC2\xC3\xCA\x00\x00\x00\x00\xE0"s           // nil, false, true, a float, -32,
      "\xCB\x00\x00\x00\x00\x00\x00\x00\x00"s           // a double,
      "\xC4\x01\xFF\xC7\x02\x01\x00\x00\xD4\x05\x00"s   // bytes, two extensions,
      "\xD9\x01z\xD3\x00\x00\x00\x00\x00\x00\x00\x00"s  // a text, a number,
      "\x82\xA1z\x91\x91\x90\x01\x80"s                  // a map with lists and a map in it,
      "\xDE\x00\x00\xDD\x00\x00\x00\x01\x7F"s           // the long forms of a map and a list,
      "\xD8\x05"s +
      std::string(16, '\0');  // the longest fixed extension.
  std::string more = golden;
  more[0] = static_cast<char>(more[0] + 1);
  return more + unknown;
}

TEST(PdWire, UnknownFieldsAreSkippedWhateverTheyHold) {
  const auto pull = DecodePull(WithUnknownFields(GoldenMessage("pull_steady")));
  ASSERT_TRUE(pull.ok()) << pull.status();
  EXPECT_EQ(*pull, SteadyPull());
  const auto reply = DecodeReply(WithUnknownFields(GoldenMessage("reply_smallest")));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, Reply());
}

TEST(PdWire, StockPeersMaySayNilForAbsentLists) {
  const auto reply = DecodeReply(
      "\x84\xA6status\x01\xA7ok_reqs\xC0\xA8"
      "err_reqs\xC0\xA7"
      "err_msg\xC0"s);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, (Reply{ReplyStatus::kContinue, {}, {}, std::nullopt, {}}));
}

TEST(PdWire, FieldsMayComeInAnyOrderAndOnlyOnce) {
  const auto reply = DecodeReply(
      "\x82\xA7"
      "err_msg\xA1x\xA6status\x02"s);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, ReplyStatus::kError);
  const auto twice = DecodeReply("\x82\xA6status\x02\xA6status\x00"s);
  EXPECT_THAT(std::string(Message(twice.status())), HasSubstr("status is given twice"));
}

std::string ReplyError(std::string_view bytes) { return std::string(Message(DecodeReply(bytes).status())); }

TEST(PdWire, ErrorsNameTheFieldThePlaceAndTheRemedy) {
  EXPECT_EQ(ReplyError("\x81\xA6status\x03"s),
            "reply: status is none of 0, 1 and 2 (byte 9 of 9); send what docs/reference/pd-wire.md describes");
  EXPECT_THAT(ReplyError(""), HasSubstr("the message ends too early"));
  EXPECT_THAT(ReplyError("\x92\x01\x02"), HasSubstr("the message is not a map"));
  EXPECT_THAT(ReplyError("\x80"), HasSubstr("status is missing"));
  EXPECT_THAT(ReplyError("\x81\xA6status\x00\x00"s), HasSubstr("goes on after its end"));
  EXPECT_THAT(ReplyError("\x81\xA6status\xFF"), HasSubstr("status is none of"));
  EXPECT_THAT(ReplyError("\x81\xA6status\xC0"), HasSubstr("status is not a whole number"));
  EXPECT_THAT(ReplyError("\x81\x01\x02"), HasSubstr("is not a text"));
  EXPECT_THAT(ReplyError("\x81\xA6status\xC1"), HasSubstr("status is not a whole number"));
  EXPECT_THAT(ReplyError("\x81\xA7"
                         "err_msg\xA1\xFF"),
              HasSubstr("err_msg is not UTF-8"));
}

TEST(PdWire, CountBeyondTheMessageTakesNoMemory) {
  EXPECT_THAT(ReplyError("\x81\xA7ok_reqs\xDD\xFF\xFF\xFF\xFF"s),
              HasSubstr("counts more items than the message has bytes for"));
  EXPECT_THAT(ReplyError("\x81\xA3new\xDF\xFF\xFF\xFF\xFF"s),
              HasSubstr("counts more items than the message has bytes for"));
  EXPECT_THAT(ReplyError("\xDF\xFF\xFF\xFF\xFF"s), HasSubstr("counts more items"));
}

TEST(PdWire, DeepNestingNeedsNoStack) {
  std::string message = "\x82\xA3new" + std::string(1'000'000, '\x91') + '\x01' + "\xA6status\x00"s;
  EXPECT_TRUE(DecodeReply(message).ok());
}

TEST(PdWire, RequestIdTwiceIsRefusedBothWays) {
  Pull pull = SteadyPull();
  pull.requests.push_back(pull.requests[0]);
  EXPECT_TRUE(absl::IsInvalidArgument(EncodePull(pull).status()));
  pull.requests[1].request_id = "req-2";
  std::string bytes = *EncodePull(pull);
  bytes.replace(bytes.find("req-2"), 5, "req-1");
  EXPECT_THAT(std::string(Message(DecodePull(bytes).status())), HasSubstr("req_blocks has a request id twice"));
}

TEST(PdWire, MemoryKeysOfAPullBelongTogether) {
  std::string bytes = *EncodePull(PullOfOneHost());
  ASSERT_EQ(bytes.substr(bytes.size() - 3), "\x91\xC4\x00"s);
  bytes.replace(bytes.size() - 3, 3, "\x92\xC4\x00\xC4\x00"s);
  EXPECT_THAT(std::string(Message(DecodePull(bytes).status())), HasSubstr("1 bases, 1 sizes and 2 keys"));
  bytes.replace(bytes.size() - 5, 5, "\x91\xA0"s);
  EXPECT_THAT(std::string(Message(DecodePull(bytes).status())), HasSubstr("remote_memory_keys is not bytes"));
}

TEST(PdWire, TransportBeyondTheMaximaIsRefusedBothWays) {
  Pull pull;
  pull.transport = {"ucx", std::string(16'384, 'a'), {4096, {1, 1, ""}}};
  const std::string most = *EncodePull(pull);
  EXPECT_EQ(*DecodePull(most), pull);
  pull.transport.address += 'a';
  EXPECT_TRUE(absl::IsInvalidArgument(EncodePull(pull).status()));
  std::string longer = most;
  const size_t length = longer.find("\xC5\x40\x00"s);
  longer.replace(length, 3, "\xC5\x40\x01"s);
  longer.insert(length + 3, "a");
  EXPECT_THAT(std::string(Message(DecodePull(longer).status())), HasSubstr("remote_transport_address is too long"));
  pull.transport.address.clear();
  pull.transport.memory.push_back({1, 1, ""});
  EXPECT_TRUE(absl::IsInvalidArgument(EncodePull(pull).status()));
}

TEST(PdWire, LeaseThatIsNoDurationIsRefusedBothWays) {
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(EncodeRenewal({{"x"}, seconds}).status())) << seconds;
    std::string bytes = *EncodeRenewal({{"x"}, 1.0});
    bytes.resize(bytes.size() - 9);
    MsgpackWriter(bytes).Number(seconds);
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeRenewal(bytes).status())) << seconds;
  }
}

TEST(PdWire, AnswerTimeThatIsNoDurationIsRefusedBothWays) {
  Pull pull;
  pull.answer_within = 1.0;
  const std::string good = *EncodePull(pull);
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    pull.answer_within = seconds;
    EXPECT_THAT(std::string(Message(EncodePull(pull).status())), HasSubstr("answer_within"));
    std::string bytes = good.substr(0, good.size() - 9);
    MsgpackWriter(bytes).Number(seconds);
    EXPECT_THAT(std::string(Message(DecodePull(bytes).status())), HasSubstr("answer_within")) << seconds;
  }
}

TEST(PdWire, WholeNumberIsALease) {
  std::string bytes = *EncodeRenewal({{"x"}, 1.0});
  bytes.resize(bytes.size() - 9);
  MsgpackWriter(bytes).Integer(30);
  const auto renewal = DecodeRenewal(bytes);
  ASSERT_TRUE(renewal.ok()) << renewal.status();
  EXPECT_EQ(renewal->kv_lease_duration, 30.0);
}

TEST(PdWire, MaximaHoldBothWays) {
  const Renewal many = {std::vector<std::string>(kRenewalIdsMax + 1, "x"), std::nullopt};
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeRenewal(many).status()));
  const Renewal most = {std::vector<std::string>(kRenewalIdsMax, "x"), std::nullopt};
  EXPECT_TRUE(DecodeRenewal(*EncodeRenewal(most)).ok());
  Reply reply;
  reply.err_message = std::string(4097, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeReply(reply).status()));
  reply.err_message = "\xC0\x80";
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeReply(reply).status()));
}

// Edge case 28: whatever arrives is an error text or a message.
TEST(PdWire, EveryCutAndEveryFlippedByteIsAnswered) {
  constexpr uint64_t kSeed = 20261129;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (const std::string& golden : AllGoldenMessages()) {
    for (size_t size = 0; size < golden.size(); ++size) {
      const std::string_view cut(golden.data(), size);
      EXPECT_FALSE(DecodePull(cut).ok());
      EXPECT_FALSE(DecodeReply(cut).ok());
      EXPECT_FALSE(DecodeRenewal(cut).ok());
    }
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = golden;
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
      for (const absl::Status& status :
           {DecodePull(bytes).status(), DecodeReply(bytes).status(), DecodeRenewal(bytes).status()}) {
        EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
      }
    }
  }
}

}  // namespace
}  // namespace tenure::pd
