#include "tenure/pd/kv_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tenure/base/status.h"
#include "tenure/pd/pull_layout.h"

namespace tenure::pd {
namespace {

using testing::HasSubstr;

KvTraits Traits() { return {.total_kv_heads = 8, .groups = {{.physical_blocks = 4}, {.physical_blocks = 4}, {}}}; }

KvLayout Layout() {
  KvLayout layout;
  layout.rank = {.tp_size = 4, .tp_rank = 2, .pp_size = 2, .pp_rank = 1};
  for (int64_t i = 0; i < 3; ++i) {
    KvRegion region;
    region.layer_name = "layer";
    region.layer_index = i;
    region.base_addr = 0x7f0000000000 + 4096 * static_cast<uint64_t>(i);
    region.block_bytes = 512;
    region.kv_bytes = 128;
    region.num_blocks = 8;
    layout.regions.push_back(region);
  }
  layout.regions[1].group_index = kSharedGroup;
  layout.regions[1].shared_group_ids = {1, 0};
  layout.regions[2].group_index = 2;
  layout.regions[2].row_offset = 256;
  return layout;
}

std::string Error(const std::function<void(KvLayout&, KvTraits&)>& change) {
  KvLayout layout = Layout();
  KvTraits traits = Traits();
  change(layout, traits);
  const absl::Status status = CheckKvLayout(layout, traits);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(Message(status));
}

TEST(KvLayoutTest, LayoutOfAWorkerIsTaken) { EXPECT_TRUE(CheckKvLayout(Layout(), Traits()).ok()); }

TEST(KvLayoutTest, WhatCannotBeIsRefusedWithItsName) {
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions.clear(); }), HasSubstr("0 KV regions"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.rank.tp_rank = 4; }), HasSubstr("rank 4"));
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.groups.clear(); }), HasSubstr("0 KV cache groups"));
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.groups.resize(kKvGroupsMax + 1); }), HasSubstr("257"));
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.total_kv_heads = 0; }), HasSubstr("total_kv_heads is 0"));
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.groups[0].physical_blocks = 0; }), HasSubstr("physical_blocks"));
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.groups[0].is_state = true; }), HasSubstr("state group"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].kv_bytes = 0; }), HasSubstr("kv_block_len 0"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].kv_bytes = 513; }), HasSubstr("block_len 512"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].group_index = 3; }), HasSubstr("group 3 of 3"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].group_index = -2; }), HasSubstr("group -2"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].shared_group_ids = {1}; }), HasSubstr("group 0 alone"));
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[0].num_blocks = 0; }), HasSubstr("0 blocks"));
}

TEST(KvLayoutTest, SharedGroupsAreSeveralDistinctOnesWithEqualBlocks) {
  for (const std::vector<int64_t>& shared :
       std::vector<std::vector<int64_t>>{{}, {0}, {0, 0}, {0, 3}, {-1, 0}, {0, INT64_MAX}}) {
    EXPECT_THAT(Error([&](auto& layout, auto&) { layout.regions[1].shared_group_ids = shared; }),
                HasSubstr("two or more of the 3 groups"));
  }
  EXPECT_THAT(Error([](auto&, auto& traits) { traits.groups[1].physical_blocks = 2; }), HasSubstr("physical_blocks"));
}

TEST(KvLayoutTest, RowsHoldTheirPayload) {
  for (const int64_t offset : {int64_t{-2}, int64_t{385}, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(Error([&](auto& layout, auto&) { layout.regions[2].row_offset = offset; }), HasSubstr("row_offset"));
  }
  EXPECT_THAT(Error([](auto& layout, auto&) { layout.regions[2].base_addr = 255; }), HasSubstr("row_offset"));
  KvLayout layout = Layout();
  layout.regions[2].row_offset = 384;
  EXPECT_TRUE(CheckKvLayout(layout, Traits()).ok());
}

TEST(KvLayoutTest, BlocksEndWithinTheAddressSpace) {
  KvLayout layout = Layout();
  layout.regions[0].base_addr = UINT64_MAX - 8 * 512;
  EXPECT_TRUE(CheckKvLayout(layout, Traits()).ok());
  EXPECT_THAT(Error([](auto& changed, auto&) { changed.regions[0].base_addr = UINT64_MAX - 8 * 512 + 1; }),
              HasSubstr("use 1 to 7"));
  EXPECT_THAT(Error([](auto& changed, auto&) { changed.regions[0].num_blocks = INT64_MAX; }), HasSubstr("blocks"));
}

TEST(PullLayoutTest, LayoutGoesThroughAPullUnchanged) {
  KvLayout expected = Layout();
  Pull pull;
  WritePullLayout(expected, pull);
  WritePullLayout(expected, pull);  // Again: replaces what stood there.
  const KvLayout read = *ReadPullLayout(*DecodePull(*EncodePull(pull)), 3);
  EXPECT_EQ(read.rank, expected.rank);
  ASSERT_EQ(read.regions.size(), expected.regions.size());
  expected.regions[0].shared_group_ids = {0};  // As stock writes it.
  expected.regions[2].shared_group_ids = {2};
  for (size_t i = 0; i < read.regions.size(); ++i) {
    expected.regions[i].num_blocks = 0;  // Not in a pull.
    EXPECT_EQ(read.regions[i], expected.regions[i]) << i;
  }
}

TEST(PullLayoutTest, SharedGroupsAndRowsMayBeLeftOut) {
  Pull pull;
  WritePullLayout(Layout(), pull);
  pull.registered_shared_group_ids.clear();
  pull.registered_row_offsets.clear();
  pull.remote_pp_rank = std::nullopt;
  const KvLayout read = *ReadPullLayout(pull, 3);
  EXPECT_EQ(read.regions[2].row_offset, kNoRow);
  EXPECT_TRUE(read.regions[1].shared_group_ids.empty());
  EXPECT_EQ(read.rank.pp_rank, 0);
}

TEST(PullLayoutTest, WhatAPeerCannotMeanIsRefused) {
  const auto error = [](const std::function<void(Pull&)>& change) {
    Pull pull;
    WritePullLayout(Layout(), pull);
    change(pull);
    const absl::Status status = ReadPullLayout(pull, 3).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(error([](Pull& pull) { pull.block_lens.pop_back(); }), HasSubstr("block_lens has 2 items for 3"));
  EXPECT_THAT(error([](Pull& pull) { pull.kv_block_lens.clear(); }), HasSubstr("kv_block_lens"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_layer_names.clear(); }), HasSubstr("registered_layer_names"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_layer_indices.push_back(0); }), HasSubstr("layer_indices"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_group_indices.clear(); }), HasSubstr("group_indices"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_shared_group_ids.pop_back(); }), HasSubstr("shared_group_ids"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_row_offsets.pop_back(); }), HasSubstr("row_offsets"));
  EXPECT_THAT(error([](Pull& pull) { pull.remote_tp_size = 0; }), HasSubstr("size 0"));
  EXPECT_THAT(error([](Pull& pull) { pull.remote_tp_rank = -1; }), HasSubstr("rank -1"));
  EXPECT_THAT(error([](Pull& pull) { pull.remote_pp_rank = 2; }), HasSubstr("rank 2"));
  EXPECT_THAT(error([](Pull& pull) { pull.block_lens[1] = -512; }), HasSubstr("block_len -512"));
  EXPECT_THAT(error([](Pull& pull) { pull.kv_block_lens[1] = INT64_MIN; }), HasSubstr("kv_block_len"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_row_offsets[1] = INT64_MAX; }), HasSubstr("row_offset"));
  EXPECT_THAT(error([](Pull& pull) { pull.registered_group_indices[0] = 7; }), HasSubstr("group 7"));
  EXPECT_THAT(error([](Pull& pull) { pull.kv_caches_base_addr.resize(kRegionsMax + 1); }), HasSubstr("65537 regions"));
}

}  // namespace
}  // namespace tenure::pd
