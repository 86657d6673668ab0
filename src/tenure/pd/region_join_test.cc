#include "tenure/pd/region_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tenure::pd {
namespace {

using testing::SizeIs;

constexpr uint64_t kPrefillRow = 0x10000;
constexpr uint64_t kDecodeRow = 0x90000;

struct View {
  int64_t offset;
  int64_t bytes;
  int64_t group = 0;
};

// Views into rows of one packed storage, named by their place in the list.
KvLayout Rows(uint64_t row_start, int64_t row_bytes, const std::vector<View>& views) {
  KvLayout layout;
  for (const View& view : views) {
    KvRegion region;
    region.layer_name = std::to_string(layout.regions.size());
    region.group_index = view.group;
    if (view.group == kSharedGroup) region.shared_group_ids = {0, 1};
    region.base_addr = row_start + static_cast<uint64_t>(view.offset);
    region.block_bytes = row_bytes;
    region.kv_bytes = view.bytes;
    region.row_offset = view.offset;
    region.num_blocks = 10;
    layout.regions.push_back(region);
  }
  return layout;
}

std::vector<CopyRegion> Join(const KvLayout& prefill, const KvLayout& decode) {
  return JoinRegions(prefill, decode, *MatchRegions(prefill, decode));
}

std::vector<CopyRegion> JoinSame(int64_t row_bytes, const std::vector<View>& views) {
  return Join(Rows(kPrefillRow, row_bytes, views), Rows(kDecodeRow, row_bytes, views));
}

TEST(RegionJoinTest, RowWithTheSameLayersOnBothSidesIsCopiedWhole) {
  const auto regions = JoinSame(256, {{0, 64}, {64, 64}, {128, 64}});
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0], (CopyRegion{{0}, kPrefillRow, kDecodeRow, 256, 256, 256, 10, regions[0].to_blocks}));
  EXPECT_TRUE(regions[0].joins_blocks());
}

TEST(RegionJoinTest, PaddingBetweenPayloadsIsCopiedAlong) {
  const auto regions = JoinSame(256, {{64, 40}, {128, 40}, {192, 40}});
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0].from, kPrefillRow + 64);
  EXPECT_EQ(regions[0].size, 168u);  // Not from the start of the row: not the whole row.
}

TEST(RegionJoinTest, RowsOfDifferentLengthJoinOnlyWhatIsAdjacent) {
  const auto regions = Join(Rows(kPrefillRow, 256, {{0, 64}, {64, 64}}), Rows(kDecodeRow, 512, {{0, 64}, {64, 64}}));
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0].size, 128u);
  EXPECT_EQ(regions[0].from_stride, 256u);
  EXPECT_EQ(regions[0].to_stride, 512u);
  EXPECT_FALSE(regions[0].joins_blocks());
}

TEST(RegionJoinTest, GapsOfDifferentWidthKeepRegionsApart) {
  EXPECT_THAT(Join(Rows(kPrefillRow, 256, {{0, 64}, {64, 64}}), Rows(kDecodeRow, 256, {{0, 64}, {128, 64}})),
              SizeIs(2));
}

TEST(RegionJoinTest, OtherOrderInTheRowKeepsRegionsApartAndTheRowUncopied) {
  const auto regions = Join(Rows(kPrefillRow, 192, {{0, 64}, {64, 64}, {128, 64}}),
                            Rows(kDecodeRow, 192, {{0, 64}, {128, 64}, {64, 64}}));
  ASSERT_THAT(regions, SizeIs(3));
  for (const CopyRegion& region : regions) EXPECT_EQ(region.size, 64u);
}

TEST(RegionJoinTest, GapThatHoldsALayerOfDecodeAloneIsLeftAlone) {
  KvLayout prefill = Rows(kPrefillRow, 192, {{0, 64}, {128, 64}});
  KvLayout decode = Rows(kDecodeRow, 192, {{0, 64}, {64, 64}, {128, 64}});
  decode.rank.pp_size = 2;
  decode.regions[1].layer_name = "of another stage";
  decode.regions[2].layer_name = "1";
  const auto regions = Join(prefill, decode);
  ASSERT_THAT(regions, SizeIs(2));
  EXPECT_EQ(regions[0].size, 64u);
  EXPECT_EQ(regions[1].to, kDecodeRow + 128);
}

TEST(RegionJoinTest, RowWithALayerThatIsNotCopiedIsNotCopiedWhole) {
  KvLayout prefill = Rows(kPrefillRow, 192, {{0, 64}, {64, 64}, {128, 64}});
  KvLayout decode = Rows(kDecodeRow, 192, {{0, 64}, {64, 64}});
  decode.rank.pp_size = 2;
  const auto regions = Join(prefill, decode);
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0].size, 128u);
}

TEST(RegionJoinTest, RowWithALayerOfDecodeAloneIsNotCopiedWhole) {
  KvLayout prefill = Rows(kPrefillRow, 192, {{0, 64}, {64, 64}});
  KvLayout decode = Rows(kDecodeRow, 192, {{0, 64}, {64, 64}, {128, 64}});
  decode.rank.pp_size = 2;
  const auto regions = Join(prefill, decode);
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0].size, 128u);
}

TEST(RegionJoinTest, NeighboursOfDifferentGroupsStayApart) {
  const auto regions = JoinSame(192, {{64, 64, 0}, {128, 64, 1}});
  ASSERT_THAT(regions, SizeIs(2));
  EXPECT_EQ(regions[0].groups, std::vector<int64_t>{0});
  EXPECT_EQ(regions[0].size, 64u);
}

TEST(RegionJoinTest, GroupsOverlayTheRowAndStayApart) {
  const auto regions = JoinSame(128, {{0, 64, 0}, {0, 128, 1}, {64, 64, 0}});
  ASSERT_THAT(regions, SizeIs(2));
  EXPECT_EQ(regions[0].groups, std::vector<int64_t>{0});
  EXPECT_EQ(regions[0].size, 128u);
  EXPECT_EQ(regions[1].groups, std::vector<int64_t>{1});
  EXPECT_EQ(regions[1].size, 128u);
}

TEST(RegionJoinTest, MemoryThatGroupsShareIsNotTakenForPadding) {
  const auto regions = JoinSame(192, {{0, 64, 0}, {64, 64, kSharedGroup}, {128, 64, 0}});
  ASSERT_THAT(regions, SizeIs(3));
  for (const CopyRegion& region : regions) EXPECT_EQ(region.size, 64u);
  EXPECT_EQ(regions[0].groups, (std::vector<int64_t>{0, 1}));
}

TEST(RegionJoinTest, SharedRowIsCopiedWholeForEachOfItsGroups) {
  const auto regions = JoinSame(128, {{0, 64, kSharedGroup}, {64, 64, kSharedGroup}});
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_EQ(regions[0].groups, (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(regions[0].joins_blocks());
}

TEST(RegionJoinTest, RegionsOutsideOfPackedRowsStayApart) {
  KvLayout prefill = Rows(kPrefillRow, 256, {{0, 64}, {64, 64}});
  KvLayout decode = Rows(kDecodeRow, 256, {{0, 64}, {64, 64}});
  for (KvRegion& region : decode.regions) region.row_offset = kNoRow;  // What a peer that leaves them out has.
  EXPECT_THAT(Join(prefill, decode), SizeIs(2));
  EXPECT_THAT(Join(decode, prefill), SizeIs(2));
}

TEST(RegionJoinTest, RowsOfDifferentStoragesStayApart) {
  KvLayout prefill = Rows(kPrefillRow, 128, {{0, 64}});
  const KvLayout next = Rows(kPrefillRow + 64, 128, {{0, 64}});
  prefill.regions.push_back(next.regions[0]);
  prefill.regions[1].layer_name = "1";
  EXPECT_THAT(Join(prefill, Rows(kDecodeRow, 128, {{0, 64}, {64, 64}})), SizeIs(2));
}

TEST(RegionJoinTest, JoinedRegionHasTheBlocksThatAllItsPartsHave) {
  KvLayout prefill = Rows(kPrefillRow, 128, {{0, 64}, {64, 64}});
  prefill.regions[1].num_blocks = 7;
  EXPECT_EQ(Join(prefill, Rows(kDecodeRow, 128, {{0, 64}, {64, 64}}))[0].from_blocks, 7u);
}

}  // namespace
}  // namespace tenure::pd
