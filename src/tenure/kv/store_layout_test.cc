#include "tenure/kv/store_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenure::kv {
namespace {

std::optional<int64_t> Lcm(std::vector<int64_t> sizes) {
  return RequestedStoreTp({.use_lcm = true, .prefill_tp_sizes = sizes, .store_tp_size = 4});
}

TEST(RequestedStoreTp, FollowsVectors) {
  EXPECT_EQ(Lcm({2, 4, 6}), 12);
  EXPECT_EQ(Lcm({}), std::nullopt);
  EXPECT_EQ(Lcm({0}), std::nullopt);
  EXPECT_EQ(Lcm({int64_t{1} << 31, 3}), std::nullopt);
  EXPECT_EQ(RequestedStoreTp({.store_tp_size = 4}), 4);
  EXPECT_EQ(RequestedStoreTp({.store_tp_size = 0}), std::nullopt);
  EXPECT_EQ(RequestedStoreTp({}), std::nullopt);
}

StoreLayoutOptions Options(int64_t store_tp, int64_t tp, int64_t kv_heads) {
  StoreLayoutOptions options;
  options.store_tp = store_tp;
  options.parallelism.tp_size = tp;
  options.cache_layout = "LBHNC";
  options.total_kv_heads = kv_heads;
  return options;
}

TEST(StoreLayout, IsPlainWhenNotAsked) {
  StoreLayoutOptions options = Options(4, 2, 8);
  options.store_tp.reset();
  EXPECT_EQ(ResolveStoreLayout(options), StoreLayout());
}

TEST(StoreLayout, ShardsWhenHeadsAndRanksDivide) {
  StoreLayoutOptions options = Options(4, 2, 8);
  EXPECT_EQ(ResolveStoreLayout(options),
            (StoreLayout{StoreLayoutKind::kTpSharded, "@store_tp:4@store_pp:1@store_format:tp_shared_lbhnc", 4}));
  options.cache_layout = "LBNHC";
  options.parallelism.pp_size = 2;
  EXPECT_EQ(ResolveStoreLayout(options).store_namespace, "@store_tp:4@store_pp:2@store_format:tp_shared_lbnhc");
}

TEST(StoreLayout, SharesOneHeadAcrossRanks) {
  EXPECT_EQ(ResolveStoreLayout(Options(4, 2, 1)),
            (StoreLayout{StoreLayoutKind::kSharedMqa, "@store_pp:1@store_format:tp_shared_mqa", 0}));
  EXPECT_EQ(ResolveStoreLayout(Options(1, 1, 1)).kind, StoreLayoutKind::kTpSharded);
}

TEST(StoreLayout, KeepsRanksApartWhenItCannotShard) {
  const StoreLayout expected = {StoreLayoutKind::kRankLocal, "@store_pp:1@store_format:rank_local_tp2_layout_LBHNC", 0};
  EXPECT_EQ(ResolveStoreLayout(Options(1, 2, 8)), expected);
  EXPECT_EQ(ResolveStoreLayout(Options(3, 2, 9)), expected);
  EXPECT_EQ(ResolveStoreLayout(Options(4, 2, 6)), expected);
  for (int condition = 0; condition < 5; ++condition) {
    StoreLayoutOptions options = Options(4, 2, 8);
    options.num_store_groups = condition == 0 ? 2 : 1;
    options.exactly_full_attention = condition != 1;
    options.cross_layers_blocks = condition == 2;
    options.parallelism.dcp_size = condition == 3 ? 2 : 1;
    options.parallelism.pcp_size = condition == 4 ? 2 : 1;
    EXPECT_EQ(ResolveStoreLayout(options), expected) << condition;
  }
  StoreLayoutOptions options = Options(4, 2, 8);
  options.cache_layout = "BHNC";
  EXPECT_EQ(ResolveStoreLayout(options).kind, StoreLayoutKind::kRankLocal);
}

TEST(ShardsOf, DivideEvenly) {
  EXPECT_EQ(ShardsOf(4, 1, 2), (ShardRange{2, 4}));
  EXPECT_EQ(ShardsOf(12, 0, 4), (ShardRange{0, 3}));
}

}  // namespace
}  // namespace tenure::kv
