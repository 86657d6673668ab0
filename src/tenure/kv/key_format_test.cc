// The vectors of the store_connector spec §14.9 and the namespaces at the end of §14.7.
#include "tenure/kv/key_format.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

// A hash of 16 bytes; the vectors use shorter ones, which keys print the same way.
BlockHash Hash() { return *BlockHash::FromHex("hash", "6833000000000000000000000000ab12"); }

TEST(KeyText, FollowsVectors) {
  EXPECT_EQ(KeyText(NamespacePrefix({"", "test-model", ""}, {}, GroupIndex(1)), Hash()),
            "test-model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@6833000000000000000000000000ab12");
  const KeyNames names = {"tenantA", "Llama-3", "@store_pp:2@store_format:tp_shared_mqa"};
  EXPECT_EQ(NamespacePrefix(names, {3, 1, 1, 2}, GroupIndex(4)),
            "tenantA@Llama-3@store_pp:2@store_format:tp_shared_mqa@tp_rank:3@pcp1@dcp1@pp_rank:2@group:4@");
  EXPECT_EQ(
      MooncakeGroupId(names, Hash()),
      "vllm-mooncake-store:tenantA@Llama-3@store_pp:2@store_format:tp_shared_mqa@6833000000000000000000000000ab12");
}

TEST(ModelName, IsTheLastComponent) {
  EXPECT_EQ(ModelName("meta-llama/Llama-3"), "Llama-3");
  EXPECT_EQ(ModelName("/models/Llama-3//"), "Llama-3");
  EXPECT_EQ(ModelName("Llama-3"), "Llama-3");
  EXPECT_EQ(ModelName("/"), "");
}

TEST(CheckKeyNames, RefusesWhatNoKeyCanHold) {
  EXPECT_TRUE(CheckKeyNames({"", "m", ""}).ok());
  EXPECT_NE(Message(CheckKeyNames({"", "", ""})).find("model is empty"), std::string_view::npos);
  EXPECT_NE(Message(CheckKeyNames({std::string("a\0b", 3), "m", ""})).find("cache_prefix"), std::string_view::npos);
  EXPECT_NE(Message(CheckKeyNames({"", "m", std::string(600, 'x')})).find("namespace has 600"), std::string_view::npos);
}

int64_t Namespaces(const GroupHeads& heads, const Parallelism& parallelism) {
  return static_cast<int64_t>(LookupRanks(parallelism, ReplicationFactor(heads, parallelism)).size());
}

TEST(LookupRanks, AreThoseThatHoldAPart) {
  const GroupHeads state = {.any_state = true, .total_kv_heads = 8};
  const GroupHeads latent = {.all_latent = true};
  const auto full = [](int64_t heads) { return GroupHeads{.total_kv_heads = heads}; };
  EXPECT_EQ(Namespaces(full(8), {.tp_size = 4}), 4);
  EXPECT_EQ(Namespaces(state, {.tp_size = 4}), 4);
  EXPECT_EQ(Namespaces(latent, {.tp_size = 4}), 1);
  EXPECT_EQ(Namespaces(full(2), {.tp_size = 8}), 2);
  EXPECT_EQ(Namespaces(latent, {.tp_size = 8}), 1);
  EXPECT_EQ(Namespaces(state, {.tp_size = 8}), 8);
  EXPECT_EQ(Namespaces(full(4), {.tp_size = 8, .pp_size = 2}), 8);
  EXPECT_EQ(Namespaces(latent, {.tp_size = 8, .pp_size = 2}), 2);
  EXPECT_EQ(Namespaces(state, {.tp_size = 8, .pp_size = 2}), 16);
  EXPECT_EQ(Namespaces(full(4), {.tp_size = 2, .pcp_size = 2}), 4);
  EXPECT_EQ(Namespaces(latent, {.tp_size = 2, .pcp_size = 2}), 2);
  EXPECT_EQ(Namespaces(full(4), {.tp_size = 6}), 6);
}

TEST(LookupRanks, HaveTheStockOrder) {
  const std::vector<KeyRank> pipeline = LookupRanks({.tp_size = 8, .pp_size = 2}, 2);
  ASSERT_EQ(pipeline.size(), 8u);
  EXPECT_EQ(pipeline[0], (KeyRank{0, 0, 0, 0}));
  EXPECT_EQ(pipeline[1], (KeyRank{0, 0, 0, 1}));
  EXPECT_EQ(pipeline[2], (KeyRank{1, 0, 0, 0}));
  const Parallelism decode = {.tp_size = 4, .dcp_size = 2};
  EXPECT_EQ(ReplicationFactor({.all_latent = true}, decode), 1);
  EXPECT_EQ(LookupRanks(decode, 1), (std::vector<KeyRank>{{0, 0, 0, 0}, {1, 0, 1, 0}, {2, 0, 0, 0}, {3, 0, 1, 0}}));
  const std::vector<KeyRank> prefill = LookupRanks({.tp_size = 2, .pcp_size = 2}, 1);
  EXPECT_EQ(prefill, (std::vector<KeyRank>{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}));
  EXPECT_EQ(ShardLookupRanks(2, 2), (std::vector<KeyRank>{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}}));
}

TEST(StoreRank, SharesTheNamespaceOfRanksWithTheSameBytes) {
  EXPECT_EQ(StoreRank({5, 1, 1, 2}, 4), (KeyRank{1, 1, 1, 2}));
  EXPECT_EQ(StoreRank({5, 0, 0, 0}, 1), (KeyRank{5, 0, 0, 0}));
}

}  // namespace
}  // namespace tenure::kv
