#include "tenure/kv/cache_config.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/base/status.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::kv {
namespace {

using testing::Chunked;
using testing::Config;
using testing::Full;
using testing::State;
using testing::Window;

std::string Refusal(int64_t hash, int64_t scheduler, bool fine, std::vector<GroupSpec> groups, bool use_eagle = false) {
  const auto config = CacheConfig::Create({Tokens(hash), Tokens(scheduler), fine, use_eagle, std::move(groups)});
  return config.ok() ? "" : std::string(Message(config.status()));
}

std::vector<int32_t> Members(const LookupUnit& unit) {
  std::vector<int32_t> groups;
  for (const GroupIndex group : unit.groups) groups.push_back(group.value());
  return groups;
}

TEST(CacheConfig, MergesEqualSpecsWithFullUnitsFirst) {
  const CacheConfig config =
      Config(8, 32, false, {Window(8, 8), Full(32), State(32), Window(8, 8), Full(16), Full(32)});
  ASSERT_EQ(config.units().size(), 4u);
  EXPECT_EQ(Members(config.units()[0]), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(Members(config.units()[1]), (std::vector<int32_t>{4}));
  EXPECT_EQ(Members(config.units()[2]), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(Members(config.units()[3]), (std::vector<int32_t>{2}));
  EXPECT_EQ(&config.UnitOf(GroupIndex(5)), &config.units()[0]);
  EXPECT_EQ(config.HashesPerChunk(GroupIndex(4)), 2);
}

TEST(CacheConfig, MergesSpecsThatDifferInUnusedFields) {
  GroupSpec odd = Full(16);
  odd.window = Tokens(7);
  odd.chunk = Tokens(9);
  EXPECT_EQ(Config(16, 16, false, {Full(16), odd}).units().size(), 1u);
}

TEST(CacheConfig, UnitIsEagleWhenOneMemberIs) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8), Window(8, 8, true)});
  EXPECT_FALSE(config.units()[0].spec.eagle);
  EXPECT_TRUE(config.units()[1].spec.eagle);
  EXPECT_FALSE(config.groups()[1].eagle);
  EXPECT_TRUE(config.any_eagle());
}

TEST(CacheConfig, UseEagleFlagsAllGroupsOnlyWhenNoneIs) {
  const CacheConfig all = Config(8, 32, false, {Full(32), Window(8, 8)}, true);
  EXPECT_TRUE(all.groups()[0].eagle && all.groups()[1].eagle);
  const CacheConfig one = Config(8, 32, false, {Full(32), Window(8, 8, true)}, true);
  EXPECT_FALSE(one.groups()[0].eagle);
  EXPECT_FALSE(Config(8, 32, false, {Full(32)}).any_eagle());
}

TEST(CacheConfig, FineUnitsAreThoseWhoseHitsEndInsideAChunk) {
  const CacheConfig fine = Config(16, 64, true, {Full(64), Window(16, 32), State(32)});
  EXPECT_TRUE(fine.units()[0].fine);
  EXPECT_FALSE(fine.units()[1].fine);
  EXPECT_TRUE(fine.units()[2].fine);
  EXPECT_EQ(fine.hit_alignment(), Tokens(16));
  EXPECT_EQ(Config(16, 64, false, {Full(64)}).hit_alignment(), Tokens(64));
}

TEST(CacheConfig, RefusalsNameTheFieldAndTheValue) {
  EXPECT_NE(Refusal(0, 16, false, {Full(16)}).find("hash_block_size is 0"), std::string::npos);
  EXPECT_NE(Refusal(16, 24, false, {Full(16)}).find("scheduler_block_size is 24"), std::string::npos);
  EXPECT_NE(Refusal(16, -16, false, {Full(16)}).find("scheduler_block_size is -16"), std::string::npos);
  EXPECT_NE(Refusal(16, int64_t{1} << 41, false, {Full(16)}).find("scheduler_block_size is"), std::string::npos);
  EXPECT_NE(Refusal(16, 16, false, {}).find("groups has 0"), std::string::npos);
  EXPECT_NE(Refusal(16, 16, false, std::vector<GroupSpec>(65, Full(16))).find("groups has 65"), std::string::npos);
  EXPECT_NE(Refusal(16, 32, false, {Full(32), Full(24)}).find("groups[1].block_size is 24"), std::string::npos);
  EXPECT_NE(Refusal(16, 32, false, {Full(0)}).find("groups[0].block_size is 0"), std::string::npos);
  EXPECT_NE(Refusal(16, 32, false, {Full(64)}).find("divisor of scheduler_block_size 32"), std::string::npos);
  EXPECT_NE(Refusal(16, 32, false, {Window(16, 0)}).find("groups[0].window is 0"), std::string::npos);
  EXPECT_NE(Refusal(16, 32, false, {Chunked(16, 64)}).find("groups[0].block_size is 16"), std::string::npos);
  EXPECT_NE(Refusal(16, 16, false, {Chunked(16, 0)}).find("groups[0].chunk is 0"), std::string::npos);
  EXPECT_NE(Refusal(16, 16, false, {Full(16), Chunked(16, 64)}, true).find("groups[1].eagle"), std::string::npos);
  EXPECT_NE(Refusal(16, 16, true, {Chunked(16, 64)}).find("fine is true"), std::string::npos);
}

TEST(GroupKind, HasOneTextPerKind) {
  for (const GroupKind kind : {GroupKind::kFull, GroupKind::kWindow, GroupKind::kState, GroupKind::kChunked}) {
    const absl::StatusOr<GroupKind> parsed = ParseGroupKind("kind", ToString(kind));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, kind);
  }
  const absl::StatusOr<GroupKind> unknown = ParseGroupKind("groups[3].kind", "mla");
  EXPECT_EQ(Message(unknown.status()), "groups[3].kind is \"mla\"; use full, window, state or chunked");
}

}  // namespace
}  // namespace tenure::kv
