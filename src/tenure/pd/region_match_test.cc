#include "tenure/pd/region_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KvRegion Region(const std::string& layer, int64_t index = 0) {
  KvRegion region;
  region.layer_name = layer;
  region.layer_index = index;
  region.block_bytes = 64;
  region.kv_bytes = 64;
  return region;
}

KvLayout Layout(std::vector<KvRegion> regions, int64_t pp_size = 1) {
  return {{.pp_size = pp_size}, std::move(regions)};
}

std::string Error(const KvLayout& prefill, const KvLayout& decode) {
  const absl::Status status = MatchRegions(prefill, decode).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(Message(status));
}

TEST(RegionMatchTest, MatchesByNameInAnyOrder) {
  EXPECT_THAT(
      *MatchRegions(Layout({Region("a"), Region("b"), Region("c")}), Layout({Region("c"), Region("a"), Region("b")})),
      ElementsAre(RegionPair{0, 1}, RegionPair{1, 2}, RegionPair{2, 0}));
}

TEST(RegionMatchTest, RegionsOfOneNameMatchInTheirOrder) {
  EXPECT_THAT(
      *MatchRegions(Layout({Region("a"), Region("b"), Region("a")}), Layout({Region("a"), Region("a"), Region("b")})),
      ElementsAre(RegionPair{0, 0}, RegionPair{1, 2}, RegionPair{2, 1}));
}

TEST(RegionMatchTest, LayerThatDecodeLacksIsAnErrorUnlessItsStagesDiffer) {
  EXPECT_THAT(Error(Layout({Region("a"), Region("b")}), Layout({Region("a")})),
              HasSubstr("layer b: region 0 is registered on P only"));
  EXPECT_THAT(*MatchRegions(Layout({Region("a"), Region("b")}), Layout({Region("b")}, 2)),
              ElementsAre(RegionPair{1, 0}));
  EXPECT_THAT(*MatchRegions(Layout({Region("a")}), Layout({Region("b")}, 2)), IsEmpty());
}

TEST(RegionMatchTest, PartOfALayerIsAnErrorWhateverTheStages) {
  EXPECT_THAT(Error(Layout({Region("a"), Region("a")}), Layout({Region("a")}, 2)), HasSubstr("region 1"));
  EXPECT_THAT(Error(Layout({Region("a")}), Layout({Region("a"), Region("a")}, 2)), HasSubstr("on D only"));
}

TEST(RegionMatchTest, LayerThatPrefillLacksWouldStayStaleEdge30) {
  EXPECT_THAT(Error(Layout({Region("a")}), Layout({Region("a"), Region("mtp")})),
              HasSubstr("layer mtp: region 0 is registered on D only"));
  EXPECT_THAT(*MatchRegions(Layout({Region("a")}), Layout({Region("a"), Region("b")}, 2)),
              ElementsAre(RegionPair{0, 0}));
}

TEST(RegionMatchTest, IndexAndGroupsHaveToAgree) {
  EXPECT_THAT(Error(Layout({Region("a", 1)}), Layout({Region("a", 2)})), HasSubstr("index 1 at P and 2 at D"));
  KvRegion other_group = Region("a");
  other_group.group_index = 1;
  EXPECT_THAT(Error(Layout({Region("a")}), Layout({other_group})), HasSubstr("group 0 at P and 1 at D"));
  KvRegion shared = Region("a");
  shared.group_index = kSharedGroup;
  shared.shared_group_ids = {0, 1};
  KvRegion with_others = shared;
  with_others.shared_group_ids = {0, 2};
  EXPECT_THAT(Error(Layout({shared}), Layout({with_others})), HasSubstr("other groups share its memory"));
  KvRegion unsaid = shared;
  unsaid.shared_group_ids = {};
  EXPECT_TRUE(MatchRegions(Layout({shared}), Layout({unsaid})).ok());
}

TEST(RegionMatchTest, NamesInMessagesAreShortAndPrintable) {
  const std::string error = Error(Layout({Region(std::string(4000, 'x') + "\n")}), Layout({}));
  EXPECT_LT(error.size(), 300u);
  EXPECT_THAT(Error(Layout({Region("a\n\xc3\xa4")}), Layout({})), HasSubstr("layer a???:"));
}

TEST(RegionMatchTest, PackedRowsWithoutTheirLayersNamesNeedEqualStages) {
  KvRegion row = Region("a");
  row.row_offset = 0;
  KvRegion hidden = row;
  hidden.hides_layers = true;
  EXPECT_TRUE(CheckRowsNameTheirLayers(Layout({hidden}), Layout({row})).ok());
  EXPECT_FALSE(CheckRowsNameTheirLayers(Layout({hidden}), Layout({Region("a")}, 2)).ok());
  EXPECT_FALSE(CheckRowsNameTheirLayers(Layout({Region("a")}), Layout({row}, 2)).ok());
  KvRegion view = row;
  view.kv_bytes = 32;
  EXPECT_TRUE(CheckRowsNameTheirLayers(Layout({view}), Layout({view}, 2)).ok());
}

}  // namespace
}  // namespace tenure::pd
