// Which object fills which block: the load vectors of store_connector spec §14.10 and §14.6.
#include "tenure/engine/load_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
#include "tenure/kv/random_hashes_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using kv::testing::Config;
using kv::testing::Full;
using kv::testing::State;
using kv::testing::Window;
using ::testing::HasSubstr;
using Chunks = std::vector<std::tuple<int, BlockId, int64_t>>;  // Group, block, index of the hash.
using Tables = std::vector<std::vector<BlockId>>;

class LoadOrderTest : public ::testing::Test {
 protected:
  absl::StatusOr<Chunks> Order(const kv::CacheConfig& config, const kv::Hit& hit, int64_t local, const Tables& tables) {
    const connector::SpanHashSource source(hashes_);
    const auto order =
        MakeLoadOrder(config, source, {.request = "r", .local = Tokens(local), .hit = hit, .blocks = tables});
    if (!order.ok()) return order.status();
    EXPECT_EQ(order->request, "r");
    EXPECT_EQ(order->local, Tokens(local));
    EXPECT_EQ(order->length, hit.length);
    Chunks chunks;
    for (const LoadChunk& chunk : order->chunks) {
      const auto at = std::find(hashes_.begin(), hashes_.end(), chunk.hash);
      chunks.emplace_back(chunk.group.value(), chunk.block, at - hashes_.begin());
    }
    return chunks;
  }

  const kv::CacheConfig fine_ = Config(4, 16, true, {Full(16), State(16)});
  const kv::Hit hit_{Tokens(36), {Tokens(48), Tokens(36)}};
  std::vector<kv::BlockHash> hashes_ = kv::RandomHashes(16);
};

TEST_F(LoadOrderTest, TailIsKeyedByItsOwnBoundary) {
  EXPECT_EQ(*Order(fine_, hit_, 0, {{1, 2, 3}, {4, 5, 6}}), (Chunks{{0, 1, 3}, {0, 2, 7}, {0, 3, 11}, {1, 6, 8}}));
}

TEST_F(LoadOrderTest, WholeBlocksThatTheEngineHasAreNotLoaded) {
  EXPECT_EQ(*Order(fine_, hit_, 20, {{1, 2, 3}, {4, 5, 6}}), (Chunks{{0, 2, 7}, {0, 3, 11}, {1, 6, 8}}));
}

TEST_F(LoadOrderTest, WindowsLoadTheirLastChunksOnly) {
  const kv::CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 16)});
  const kv::Hit hit{Tokens(64), {Tokens(64), Tokens(64)}};
  EXPECT_EQ(*Order(config, hit, 0, {{1, 2}, {0, 0, 0, 0, 0, 0, 7, 8}}),
            (Chunks{{0, 1, 3}, {0, 2, 7}, {1, 7, 6}, {1, 8, 7}}));
}

TEST_F(LoadOrderTest, NullBlocksAreLeftOut) {
  EXPECT_EQ(*Order(fine_, hit_, 0, {{1, 0, 3}, {4, 5, 6}}), (Chunks{{0, 1, 3}, {0, 3, 11}, {1, 6, 8}}));
}

TEST_F(LoadOrderTest, TablesThatCannotHoldTheHitAreRefused) {
  EXPECT_THAT(Message(Order(fine_, hit_, 0, {{1, 2}, {4, 5, 6}}).status()), HasSubstr("blocks[0] has 2 blocks"));
  EXPECT_THAT(Message(Order(fine_, hit_, 0, {{1, 2, 3}}).status()), HasSubstr("1 tables; the cache has 2 groups"));
}

}  // namespace
}  // namespace tenure::engine
