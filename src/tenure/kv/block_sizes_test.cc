#include "tenure/kv/block_sizes.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

ModelGroup Group(GroupKind kind, int64_t block) {
  ModelGroup group;
  group.kind = kind;
  group.block_size = Tokens(block);
  group.dcp_sharded = kind != GroupKind::kState;
  return group;
}
ModelGroup Full(int64_t block) { return Group(GroupKind::kFull, block); }
ModelGroup Window(int64_t block) { return Group(GroupKind::kWindow, block); }
ModelGroup State(int64_t block) { return Group(GroupKind::kState, block); }

BlockSizes Sizes(int64_t scheduler, int64_t hash, int64_t alignment) {
  return {Tokens(scheduler), Tokens(hash), Tokens(alignment)};
}
std::string Refusal(const BlockSizeOptions& options) {
  const absl::StatusOr<BlockSizes> sizes = ResolveBlockSizes(options);
  return sizes.ok() ? "" : std::string(Message(sizes.status()));
}

// The vectors of the store_connector spec §14.3.
TEST(ResolveBlockSizes, FollowsVectors) {
  EXPECT_EQ(*ResolveBlockSizes({{Full(16)}}), Sizes(16, 16, 16));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16)}, 2}), Sizes(32, 32, 32));
  EXPECT_EQ(*ResolveBlockSizes({{Full(32), Window(8)}}), Sizes(32, 8, 32));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(64)}}), Sizes(64, 16, 16));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(64)}, 1, Tokens(4)}), Sizes(64, 4, 4));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(16)}}), Sizes(16, 16, 16));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(16)}, 2}), Sizes(32, 16, 16));
  EXPECT_EQ(*ResolveBlockSizes({{Full(24), Window(16)}}), Sizes(48, 8, 48));
  EXPECT_EQ(*ResolveBlockSizes({{Full(64), Window(16), State(32)}}), Sizes(64, 16, 16));
  EXPECT_NE(Refusal({{Full(16)}, 1, Tokens(8)}).find("prefix_match_unit is 8"), std::string::npos);
}

TEST(ResolveBlockSizes, WithoutAlignedStatesHashesWholeBlocks) {
  ModelGroup state = State(64);
  state.state_align = false;
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), state}}), Sizes(64, 64, 64));
}

TEST(ResolveBlockSizes, PartialHitsNeedPrefixCachingAndSearchableGroups) {
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(64)}, 1, {}, false}), Sizes(64, 16, 64));
  EXPECT_EQ(*ResolveBlockSizes({{Full(16), State(64), Window(32)}}), Sizes(64, 16, 64));
}

TEST(ResolveBlockSizes, GroupsThatAreNotCacheableDoNotSetTheHashUnit) {
  ModelGroup odd = Window(8);
  odd.prefix_cacheable = false;
  EXPECT_EQ(*ResolveBlockSizes({{Full(32), odd}}), Sizes(32, 32, 32));
}

TEST(ResolveBlockSizes, RefusalsNameTheField) {
  EXPECT_NE(Refusal({{}}).find("groups is empty"), std::string::npos);
  EXPECT_NE(Refusal({{Full(0)}}).find("groups[0].block_size is 0"), std::string::npos);
  EXPECT_NE(Refusal({{Full(16)}, 0}).find("dcp_size is 0"), std::string::npos);
  EXPECT_NE(Refusal({{Full(16), State(64)}, 1, Tokens(0)}).find("prefix_match_unit is 0"), std::string::npos);
  EXPECT_NE(Refusal({{Full(16), State(64)}, 1, Tokens(6)}).find("divisor of groups[0].block_size 16"),
            std::string::npos);
  EXPECT_NE(Refusal({{Full((int64_t{1} << 40) - 1), Full((int64_t{1} << 40) - 3)}}).find("least common multiple"),
            std::string::npos);
  ModelGroup state = State(64);
  state.tokens_per_state = 3;
  EXPECT_NE(Refusal({{Full(16), state}}).find("groups[1].tokens_per_state is 3"), std::string::npos);
}

}  // namespace
}  // namespace tenure::kv
