// The vectors of the store_connector spec §14.8 that concern CBOR: hash unit 4, tokens 0 to 11.
#include "tenure/kv/hash_chain.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <numeric>
#include <string>

#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

constexpr HashAlgorithm kSha = HashAlgorithm::kSha256Cbor;
constexpr HashAlgorithm kXxh = HashAlgorithm::kXxhashCbor;

HashChain Chain(HashAlgorithm algorithm, std::optional<std::string_view> seed, HashExtras extras = {}) {
  return *HashChain::Create({algorithm, Tokens(4), *NoneHash(algorithm, seed), std::move(extras)});
}

std::vector<int64_t> Tokens0To(int64_t end) {
  std::vector<int64_t> tokens(static_cast<size_t>(end));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::string FirstHash(HashAlgorithm algorithm, std::optional<std::string_view> seed, HashExtras extras = {}) {
  HashChain chain = Chain(algorithm, seed, std::move(extras));
  chain.Append(Tokens0To(4));
  return chain.hashes()[0].ToHex();
}

TEST(NoneHash, FollowsVectors) {
  EXPECT_EQ(NoneHash(kSha, std::nullopt)->ToHex(), "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
  EXPECT_EQ(NoneHash(kSha, "0")->ToHex(), "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
  EXPECT_EQ(NoneHash(kXxh, "0")->ToHex(), "1ebe36576dcb573f26b99533a20aaeca");
}

TEST(NoneHash, OfAnEmptySeedIsNotTheDefault) { EXPECT_NE(NoneHash(kSha, "")->ToHex(), NoneHash(kSha, {})->ToHex()); }

TEST(NoneHash, RefusesXxhashWithoutSeed) {
  EXPECT_NE(Message(NoneHash(kXxh, std::nullopt).status()).find("PYTHONHASHSEED"), std::string_view::npos);
}

TEST(HashChain, FollowsSha256Vectors) {
  HashChain chain = Chain(kSha, std::nullopt);
  chain.Append(Tokens0To(12));
  ASSERT_EQ(chain.hashes().size(), 3u);
  EXPECT_EQ(chain.hashes()[0].ToHex(), "c49ab11fb576db6f376aef58c24f728a0ba1807e8cac5f940f1a5c4c20741898");
  EXPECT_EQ(chain.hashes()[1].ToHex(), "9d0a7c928c548f9aeea31ae98471cf515045a206851732ac14cb3083c18d40f9");
  EXPECT_EQ(chain.hashes()[2].ToHex(), "f96dd657a1cf55a0a400707b90c437fb0b516dbc833996713e6829a3fe01fe19");
  EXPECT_EQ(EventInteger(chain.hashes()[0]), 1088283741995145368u);
}

TEST(HashChain, FollowsXxhashVector) { EXPECT_EQ(FirstHash(kXxh, "0"), "c20df5f86688b63f4cb5a744053f0b61"); }

TEST(HashChain, FollowsVectorsWithExtraKeys) {
  HashExtras salted;
  salted.cache_salt = "s";
  EXPECT_EQ(FirstHash(kSha, {}, salted), "133f45b0653b06a987ebab68a95537b0e94b5986856599cd117752c96df80d39");
  HashExtras lora;
  lora.lora = HashExtras::Lora{"a", "/p"};
  EXPECT_EQ(FirstHash(kSha, {}, lora), "4e8903d5d63bf093cb3da419918e1864f0b0a8156bd2f01718a234bcbe240c3d");
  HashExtras image;
  image.items = {{"id0", Tokens(1), Tokens(2)}};
  EXPECT_EQ(FirstHash(kSha, {}, image), "a8c58f28a9f87a4fca23e7ff5084d333a8219da5b7f6357d074dfed38862ebae");
}

TEST(HashChain, GivesTheSameHashesHoweverTokensArrive) {
  HashChain whole = Chain(kSha, "x");
  whole.Append(Tokens0To(23));
  HashChain pieces = Chain(kSha, "x");
  const std::vector<int64_t> tokens = Tokens0To(23);
  for (size_t begin = 0; begin < tokens.size(); begin += 3) {
    pieces.Append(std::span(tokens).subspan(begin, std::min<size_t>(3, tokens.size() - begin)));
  }
  ASSERT_EQ(whole.hashes().size(), 5u);
  EXPECT_TRUE(std::equal(whole.hashes().begin(), whole.hashes().end(), pieces.hashes().begin(), pieces.hashes().end()));
}

TEST(HashChain, SaltReachesEveryLaterHash) {
  HashExtras salted;
  salted.cache_salt = "s";
  HashChain with = Chain(kSha, {}, salted);
  HashChain without = Chain(kSha, {});
  with.Append(Tokens0To(12));
  without.Append(Tokens0To(12));
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(with.hashes()[i], without.hashes()[i]);
}

// An item enters each block it overlaps, with its offset from that block, and no other.
TEST(HashChain, ItemsEnterTheBlocksTheyOverlap) {
  HashExtras late;
  late.items = {{"id", Tokens(6), Tokens(4)}};  // Tokens 6 to 9: blocks 1 and 2.
  HashChain with = Chain(kSha, {}, late);
  HashChain without = Chain(kSha, {});
  with.Append(Tokens0To(12));
  without.Append(Tokens0To(12));
  EXPECT_EQ(with.hashes()[0], without.hashes()[0]);
  EXPECT_NE(with.hashes()[1], without.hashes()[1]);
  CborWriter block2;
  block2.Array(3);
  block2.Bytes(with.hashes()[1].bytes());
  block2.Array(4);
  for (const int64_t token : {8, 9, 10, 11}) block2.Integer(token);
  block2.Array(1);
  block2.Array(3);
  block2.Text("mm");
  block2.Text("id");
  block2.Integer(-2);
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest{};
  SHA256(block2.bytes().data(), block2.bytes().size(), digest.data());
  EXPECT_EQ(with.hashes()[2], BlockHash::FromTrusted(digest));
}

TEST(HashChain, PromptEmbedsEnterTheirBlock) {
  HashExtras extras;
  extras.prompt_embeds.resize(2);
  extras.prompt_embeds[1][0] = 1;
  HashChain a = Chain(kSha, {}, extras);
  extras.prompt_embeds[1][0] = 2;
  HashChain b = Chain(kSha, {}, extras);
  a.Append(Tokens0To(8));
  b.Append(Tokens0To(8));
  EXPECT_EQ(a.hashes()[0], b.hashes()[0]);
  EXPECT_NE(a.hashes()[1], b.hashes()[1]);
}

TEST(HashChain, RefusalsNameTheField) {
  const BlockHash none = *NoneHash(kSha, "");
  EXPECT_NE(Message(HashChain::Create({kSha, Tokens(0), none, {}}).status()).find("hash_block_size is 0"),
            std::string_view::npos);
  EXPECT_NE(Message(HashChain::Create({kXxh, Tokens(4), none, {}}).status()).find("none_hash has 32"),
            std::string_view::npos);
  HashExtras extras;
  extras.items = {{"a", Tokens(5), Tokens(1)}, {"b", Tokens(4), Tokens(1)}};
  EXPECT_NE(Message(HashChain::Create({kSha, Tokens(4), none, extras}).status()).find("items[1].offset is 4"),
            std::string_view::npos);
  extras.items = {{"a", Tokens(5), Tokens(0)}};
  EXPECT_NE(Message(HashChain::Create({kSha, Tokens(4), none, extras}).status()).find("items[0].length is 0"),
            std::string_view::npos);
}

TEST(HashAlgorithm, RefusesPickleVariantsWithTheReason) {
  EXPECT_EQ(*ParseHashAlgorithm("algorithm", "xxhash_cbor"), kXxh);
  EXPECT_EQ(*ParseHashAlgorithm("algorithm", "sha256_cbor"), kSha);
  EXPECT_NE(Message(ParseHashAlgorithm("algorithm", "sha256").status()).find("pickles"), std::string_view::npos);
  EXPECT_NE(Message(ParseHashAlgorithm("algorithm", "md5").status()).find("\"md5\""), std::string_view::npos);
}

std::string Cbor(int64_t value) {
  CborWriter writer;
  writer.Integer(value);
  std::string hex;
  for (const uint8_t byte : writer.bytes()) hex += fmt::format("{:02x}", byte);
  return hex;
}

// RFC 8949, appendix A.
TEST(CborWriter, UsesTheShortestHeads) {
  EXPECT_EQ(Cbor(0), "00");
  EXPECT_EQ(Cbor(23), "17");
  EXPECT_EQ(Cbor(24), "1818");
  EXPECT_EQ(Cbor(255), "18ff");
  EXPECT_EQ(Cbor(1000), "1903e8");
  EXPECT_EQ(Cbor(1000000), "1a000f4240");
  EXPECT_EQ(Cbor(1000000000000), "1b000000e8d4a51000");
  EXPECT_EQ(Cbor(-1), "20");
  EXPECT_EQ(Cbor(-1000), "3903e7");
  EXPECT_EQ(Cbor(INT64_MIN), "3b7fffffffffffffff");
}

}  // namespace
}  // namespace tenure::kv
