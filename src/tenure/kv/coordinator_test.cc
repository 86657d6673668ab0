// The oracle against the vectors of the store_connector spec §14.5, §14.6 and §14.7.
#include <gtest/gtest.h>

#include "tenure/kv/coordinator_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::kv::testing {
namespace {

using Keys = std::set<int64_t>;

Keys Range(int64_t end) {
  Keys keys;
  for (int64_t k = 0; k < end; ++k) keys.insert(k);
  return keys;
}

struct UnitVector {
  GroupSpec spec;
  Keys present;
  UnitQuery query;
  int64_t length;
  std::string blocks;
};

void ExpectUnitHits(const std::vector<UnitVector>& vectors) {
  for (size_t i = 0; i < vectors.size(); ++i) {
    const UnitVector& v = vectors[i];
    EXPECT_EQ(OracleUnitHit(v.spec, v.present, v.query).length, v.length) << "vector " << i;
    if (!v.blocks.empty()) {
      EXPECT_EQ(OracleUnitHit(v.spec, v.present, v.query).blocks, v.blocks) << "vector " << i;
    }
  }
}

TEST(OracleUnitHit, FollowsFullAttentionVectors) {
  ExpectUnitHits({{Full(16), {0, 1, 2, 4, 5}, {16, 64, 128, 16, false}, 48, "111"},
                  {Full(16), {0, 1, 2, 4, 5}, {16, 64, 128, 32, false}, 32, "11"},
                  {Full(16), {0, 1, 2, 4, 5}, {16, 64, 128, 16, true}, 32, "11"},
                  {Full(16), Range(5), {16, 64, 128, 32, true}, 64, "1111"},
                  {Full(16), Range(3), {16, 64, 47, 16, false}, 32, ""},
                  {Full(16), {0}, {16, 64, 16, 16, true}, 0, ""},
                  {Full(32), {3, 7, 15}, {8, 64, 128, 32, false}, 64, ""},
                  {Full(32), {3, 7, 11}, {8, 64, 128, 64, false}, 64, ""},
                  {Full(32), {3, 7, 11, 15}, {8, 64, 128, 64, true}, 64, "11"}});
}

TEST(OracleUnitHit, FollowsFineFullAttentionVectors) {
  ExpectUnitHits({{Full(16), {3, 7, 9}, {4, 64, 64, 4, false}, 40, "111"},
                  {Full(16), {3, 7, 8, 10}, {4, 64, 64, 4, false}, 44, "111"},
                  {Full(16), {3, 7, 11}, {4, 64, 64, 4, false}, 48, ""},
                  {Full(16), {3, 7, 9}, {4, 64, 64, 4, true}, 36, "111"},
                  {Full(16), {3, 7, 11}, {4, 64, 64, 4, true}, 44, ""},
                  {Full(16), {3, 7, 9}, {4, 64, 39, 4, false}, 32, "11"},
                  {Full(16), {1}, {4, 64, 64, 4, false}, 8, "1"},
                  {Full(16), {3, 7, 8}, {4, 64, 32, 4, true}, 28, "11"}});
}

TEST(OracleUnitHit, FollowsWindowVectors) {
  ExpectUnitHits({{Window(8, 8), {2, 5}, {8, 64, 64, 8, false}, 48, "000001"},
                  {Window(8, 16), {1, 2, 5}, {8, 64, 64, 8, false}, 24, "011"},
                  {Window(8, 17), {1, 2, 5}, {8, 64, 64, 8, false}, 24, "011"},
                  {Window(8, 16), {5}, {8, 64, 64, 8, false}, 0, ""},
                  {Window(8, 16), {0}, {8, 64, 64, 8, false}, 8, "1"},
                  {Window(8, 25), {0, 1}, {8, 64, 64, 8, false}, 16, "11"},
                  {Window(8, 8), {0, 1, 2, 4}, {8, 64, 64, 8, true}, 16, "01"},
                  {Window(8, 8), {0}, {8, 64, 64, 8, true}, 0, ""},
                  {Window(8, 8), {3, 7}, {8, 64, 64, 32, false}, 64, "00000001"},
                  {Window(8, 8), {3, 6}, {8, 64, 64, 32, false}, 32, "0001"},
                  {Window(8, 16), {2, 3, 5, 6}, {8, 64, 64, 32, false}, 32, "0011"},
                  {Window(8, 16), {3, 4, 6, 7}, {8, 64, 64, 32, false}, 64, "00000011"},
                  {Window(8, 41), {0, 1, 2}, {8, 64, 64, 32, false}, 0, ""},
                  {Window(8, 41), Range(5), {8, 64, 64, 32, false}, 32, "1111"},
                  {Window(8, 8), {3, 7, 8}, {8, 64, 72, 32, true}, 64, "00000001"},
                  {Window(8, 8), {3, 4, 7}, {8, 64, 72, 32, true}, 32, "0001"},
                  {Window(8, 16), {2, 3, 4}, {8, 64, 72, 32, true}, 32, "0011"},
                  {Window(8, 33), Range(5), {8, 64, 72, 32, true}, 32, ""},
                  {Window(8, 41), Range(5), {8, 64, 72, 32, true}, 0, ""},
                  {Window(8, 41), Range(5), {8, 64, 72, 8, true}, 32, ""}});
}

TEST(OracleUnitHit, FollowsStateAndChunkedVectors) {
  ExpectUnitHits({{State(32), {1, 3}, {32, 64, 256, 32, false}, 128, "0001"},
                  {State(32), {1, 2, 4}, {32, 64, 256, 64, false}, 64, "01"},
                  {State(32), {1, 2, 4}, {32, 64, 127, 64, false}, 64, ""},
                  {State(32), {}, {32, 64, 256, 64, false}, 0, ""},
                  {State(16), {3, 9}, {4, 64, 64, 4, false}, 40, "001"},
                  {State(16), {3, 9}, {4, 64, 39, 4, false}, 16, "1"},
                  {State(16), {0}, {4, 64, 64, 4, false}, 4, "1"},
                  {State(16), {9, 11}, {4, 64, 64, 4, true}, 48, ""},
                  {State(16), {3, 7, 9}, {4, 64, 64, 16, false}, 32, "01"},
                  {Chunked(4, 8), {2}, {4, 64, 15, 4, false}, 12, "001"},
                  {Chunked(4, 8), {}, {4, 64, 15, 4, false}, 8, "00"},
                  {Chunked(4, 8), {}, {4, 64, 16, 4, false}, 16, "0000"},
                  {Chunked(4, 16), {4, 5}, {4, 64, 30, 4, false}, 24, "000011"},
                  {Chunked(4, 16), {5, 6}, {4, 64, 30, 4, false}, 16, "0000"}});
}

PresenceSet Present(int64_t num_hashes, std::vector<Keys> groups) { return {num_hashes, std::move(groups)}; }

TEST(OracleHit, FollowsFullAndWindowVectors) {
  const CacheConfig plain = Config(8, 32, false, {Full(32), Window(8, 8)});
  const auto hit = [&](Keys full, Keys window) { return OracleHit(plain, Present(12, {full, window}), 96); };
  EXPECT_EQ(hit({3}, {3}), (CoordinatorHit{32, {"1", "0001"}}));
  EXPECT_EQ(hit({3, 7, 11}, {3, 7}), (CoordinatorHit{64, {"11", "00000001"}}));
  EXPECT_EQ(hit({3, 7, 11}, {11}).length, 96);
  EXPECT_EQ(hit({3, 7}, {11}).length, 0);
  EXPECT_EQ(hit({3, 7}, {2, 10}).length, 0);
  const CacheConfig eagle = Config(8, 32, false, {Full(32), Window(8, 8)}, true);
  const auto eagle_hit = [&](Keys full, Keys window) {
    return OracleHit(eagle, Present(12, {full, window}), 96).length;
  };
  EXPECT_EQ(eagle_hit({3, 7, 11}, {7, 8}), 64);
  EXPECT_EQ(eagle_hit({3, 7, 11}, {7}), 0);
  EXPECT_EQ(eagle_hit({3, 7, 11}, {3, 4, 7}), 32);
  EXPECT_EQ(eagle_hit({3, 7}, {3, 4, 7, 8}), 32);
}

TEST(OracleHit, FollowsFullAndStateVectors) {
  const CacheConfig coarse = Config(16, 16, false, {Full(16), State(16)});
  EXPECT_EQ(OracleHit(coarse, Present(8, {Range(6), {3, 6}}), 128), (CoordinatorHit{64, {"1111", "0001"}}));
  EXPECT_EQ(OracleHit(coarse, Present(8, {Range(6), {3, 5}}), 128).length, 96);
  EXPECT_EQ(OracleHit(coarse, Present(8, {Range(2), {3, 5}}), 128).length, 0);
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)});
  EXPECT_EQ(OracleHit(fine, Present(12, {{3, 7, 10}, {10}}), 48).length, 44);
  EXPECT_EQ(OracleHit(fine, Present(12, {{3, 7, 9}, {7, 10}}), 48).length, 32);
  EXPECT_EQ(OracleHit(fine, Present(12, {{3, 7, 11}, {8}}), 48), (CoordinatorHit{36, {"111", "001"}}));
  EXPECT_EQ(OracleHit(fine, Present(12, {{3, 7}, {10}}), 48).length, 0);
  const CacheConfig eagle = Config(4, 16, true, {Full(16), State(16)}, true);
  EXPECT_EQ(OracleHit(eagle, Present(12, {{3, 7, 10}, {9}}), 48).length, 40);
  EXPECT_EQ(OracleHit(eagle, Present(12, {{3, 7, 11}, {10}}), 48).length, 44);
  EXPECT_EQ(OracleHit(eagle, Present(12, {{3, 7, 11}, {11}}), 48).length, 0);
}

TEST(OracleHit, FollowsThreeUnitVectors) {
  const CacheConfig fine = Config(16, 64, true, {Full(64), Window(16, 32), State(32)});
  EXPECT_EQ(OracleHit(fine, Present(16, {{3, 7, 11, 15}, {6, 7, 14, 15}, {7, 15}}), 256).length, 256);
  EXPECT_EQ(OracleHit(fine, Present(16, {{3, 7, 11, 15}, {6, 7, 9, 10, 14, 15}, {3, 10}}), 256),
            (CoordinatorHit{176, {"111", "00000000011", "000001"}}));
  const CacheConfig plain = Config(8, 32, false, {Full(32), Window(8, 8), Window(8, 16)});
  const Keys full = {3, 7, 11, 15};
  EXPECT_EQ(OracleHit(plain, Present(16, {full, {3, 11}, {2, 3, 6, 7}}), 128).length, 32);
  const CacheConfig eagle = Config(8, 32, false, {Full(32), Window(8, 8), Window(8, 16)}, true);
  EXPECT_EQ(OracleHit(eagle, Present(16, {full, {3, 4, 7, 8, 11, 12}, {2, 3, 4, 6, 7, 8}}), 128).length, 64);
  EXPECT_EQ(OracleHit(eagle, Present(16, {full, {3, 4, 11, 12}, {2, 3, 4, 6, 7, 8}}), 128),
            (CoordinatorHit{32, {"1", "0001", "0011"}}));
}

TEST(OracleHit, MergesEqualSpecsIntoOneUnit) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8), Window(8, 8)});
  EXPECT_EQ(OracleHit(config, Present(12, {{3, 7, 11}, {7, 11}, {7}}), 96).length, 64);
}

TEST(OracleLoadMask, FollowsVectors) {
  for (const auto& [window, mask] : std::vector<std::pair<int64_t, std::string>>{
           {8, "00000001"}, {16, "00000011"}, {17, "00000011"}, {18, "00000111"}, {100, "11111111"}}) {
    EXPECT_EQ(OracleLoadMask(Config(8, 8, false, {Window(8, window)}), 64)[0], mask);
  }
  EXPECT_EQ(OracleLoadMask(Config(16, 16, false, {Chunked(16, 64)}), 112)[0], "0000111");
  EXPECT_EQ(OracleLoadMask(Config(8, 32, false, {Full(32), Window(8, 16)}), 64),
            (std::vector<std::string>{"11", "00000011"}));
}

Hit HitOf(int64_t length, std::vector<int64_t> tails) {
  Hit hit;
  hit.length = Tokens(length);
  for (const int64_t tail : tails) hit.tails.emplace_back(tail);
  return hit;
}

TEST(OracleLookup, FollowsCoarseVectors) {
  const CacheConfig full = Config(16, 16, false, {Full(16)});
  EXPECT_EQ(OracleLookup(full, Present(4, {Range(4)}), 64), HitOf(48, {48}));
  EXPECT_EQ(OracleCandidates(full, 4, 64).size(), 4u);
  EXPECT_EQ(OracleLookup(full, Present(4, {Range(4)}), 65).length, Tokens(64));
  EXPECT_EQ(OracleLookup(full, Present(1, {Range(1)}), 16), Hit());
  EXPECT_EQ(OracleCandidates(full, 1, 16).size(), 1u);
  EXPECT_EQ(OracleCandidates(full, 0, 15).size(), 0u);
  const CacheConfig hybrid = Config(8, 32, false, {Full(32), Window(8, 8)});
  EXPECT_EQ(OracleLookup(hybrid, Present(12, {{3}, {3}}), 96).length, Tokens(32));
  EXPECT_EQ(OracleLookup(hybrid, Present(12, {{3, 7, 11}, {3, 7, 11}}), 96).length, Tokens(64));
  EXPECT_EQ(OracleLookup(hybrid, Present(12, {{3, 7, 11}, {3, 7, 11}}), 97).length, Tokens(96));
  std::vector<GroupHash> keys;
  for (const int32_t group : {0, 1}) {
    for (const int64_t k : {3, 7, 11}) keys.push_back({GroupIndex(group), HashIndex(k)});
  }
  EXPECT_EQ(OracleCandidates(hybrid, 12, 96), keys);
}

TEST(OracleLookup, FollowsFineVectors) {
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)});
  EXPECT_EQ(OracleLookup(fine, Present(12, {{3, 7, 10}, {10}}), 48), HitOf(44, {44, 44}));
  EXPECT_EQ(OracleCandidates(fine, 12, 48).size(), 24u);
  EXPECT_EQ(OracleLookup(fine, Present(12, {{3, 7, 11}, {8}}), 48), HitOf(36, {48, 36}));
  EXPECT_EQ(OracleLookup(fine, Present(12, {{3, 7, 9, 11}, {8}}), 49), HitOf(36, {40, 36}));
  EXPECT_EQ(OracleLookup(fine, Present(12, {{3, 7, 11}, {9, 11}}), 48), Hit());
  EXPECT_EQ(OracleLookup(fine, Present(12, {{3, 7, 11}, {9, 11}}), 50).length, Tokens(48));
  EXPECT_EQ(OracleLookup(fine, Present(1, {{0}, {0}}), 5).length, Tokens(4));
  EXPECT_EQ(OracleLookup(fine, Present(1, {{0}, {0}}), 4), Hit());
  const CacheConfig eagle = Config(4, 16, true, {Full(16), State(16)}, true);
  EXPECT_EQ(OracleLookup(eagle, Present(12, {{3, 7, 10}, {9}}), 50), HitOf(40, {44, 40}));
}

TEST(BruteForceBoundary, AsksForLoadSetAndProof) {
  const CacheConfig plain = Config(8, 32, false, {Full(32), Window(8, 16)});
  EXPECT_TRUE(BruteForceBoundary(plain, Present(12, {{3, 7}, {6, 7}}), 64));
  EXPECT_FALSE(BruteForceBoundary(plain, Present(12, {{7}, {6, 7}}), 64));
  EXPECT_FALSE(BruteForceBoundary(plain, Present(12, {{3, 7}, {5, 7}}), 64));
  const CacheConfig eagle = Config(8, 32, false, {Full(32), Window(8, 16)}, true);
  EXPECT_TRUE(BruteForceBoundary(eagle, Present(12, {{3, 7, 11}, {6, 7, 8}}), 64));
  EXPECT_FALSE(BruteForceBoundary(eagle, Present(12, {{3, 7}, {6, 7, 8}}), 64));
  EXPECT_FALSE(BruteForceBoundary(eagle, Present(12, {{3, 7, 11}, {6, 7}}), 64));
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)}, true);
  EXPECT_TRUE(BruteForceBoundary(fine, Present(12, {{3, 7, 10}, {9}}), 40));
  EXPECT_FALSE(BruteForceBoundary(fine, Present(12, {{3, 7, 9}, {9}}), 40));
}

TEST(ClosedPart, KeepsOnlyChunksWithAncestors) {
  const CacheConfig config = Config(4, 16, true, {Full(16), State(16)});
  EXPECT_EQ(ClosedPart(config, Present(16, {{3, 6, 15}, {2, 6, 7, 15}})), Present(16, {{3, 6}, {2, 6}}));
}

}  // namespace
}  // namespace tenure::kv::testing
