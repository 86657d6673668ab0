#include "tenure/sim/boundary_audit.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenure::sim {
namespace {

kv::CacheConfig Config() {
  const kv::GroupSpec full{kv::GroupKind::kFull, Tokens(16), Tokens(), Tokens(), false};
  const kv::GroupSpec state{kv::GroupKind::kState, Tokens(16), Tokens(), Tokens(), false};
  return kv::CacheConfig::Create({.hash_block_size = Tokens(16),
                                  .scheduler_block_size = Tokens(16),
                                  .fine = false,
                                  .use_eagle = false,
                                  .groups = {full, state}})
      .value();
}

constexpr kv::GroupIndex kFull(0);
constexpr kv::GroupIndex kState(1);

TEST(BoundaryAudit, AHitNeedsEveryGroupsObject) {
  const kv::CacheConfig config = Config();
  BoundaryAudit audit(config);
  const std::vector<int64_t> blocks = {7, 8, 9};
  EXPECT_EQ(audit.UnlimitedHit(blocks, Tokens(49)), Tokens(0));
  for (const int64_t block : blocks) audit.Keep(block, kFull);
  EXPECT_EQ(audit.UnlimitedHit(blocks, Tokens(49)), Tokens(0));
  audit.Keep(8, kState);
  EXPECT_EQ(audit.UnlimitedHit(blocks, Tokens(49)), Tokens(32));
  audit.Keep(9, kState);
  EXPECT_EQ(audit.UnlimitedHit(blocks, Tokens(49)), Tokens(48));
  EXPECT_EQ(audit.UnlimitedHit(blocks, Tokens(48)), Tokens(32));  // The last token is computed.
  EXPECT_EQ(audit.UnlimitedHit(std::vector<int64_t>{6, 8, 9}, Tokens(49)), Tokens(0));
}

TEST(BoundaryAudit, RemembersTheLastSaveOfEachStoreApart) {
  const kv::CacheConfig config = Config();
  BoundaryAudit audit(config);
  audit.Keep(7, kFull);
  EXPECT_EQ(audit.LastSaved(0, 7), std::nullopt);
  EXPECT_EQ(audit.LastSaved(0, 12345), std::nullopt);
  audit.Saved(0, 7, kFull, 100);
  audit.Saved(0, 7, kState, 250);
  EXPECT_EQ(audit.LastSaved(0, 7), 250);
  EXPECT_EQ(audit.LastSaved(1, 7), std::nullopt);
  EXPECT_EQ(audit.blocks(), 1);
}

TEST(BoundaryAudit, StaysBelow200BytesABlock) {
  const kv::CacheConfig config = Config();
  BoundaryAudit audit(config);
  for (int64_t block = 0; block < 100'000; ++block) {
    audit.Saved(0, block, kFull, block);
    if (block > 100) {
      ASSERT_LE(audit.bytes().value(), audit.blocks() * 200);
    }
  }
}

}  // namespace
}  // namespace tenure::sim
