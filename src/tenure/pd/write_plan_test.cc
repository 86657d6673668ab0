#include "tenure/pd/write_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tenure/base/status.h"
#include "tenure/pd/pull_layout.h"

namespace tenure::pd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kFrom = 0x1000000;
constexpr uint64_t kTo = 0x9000000;

// One region a layer, each of `num_blocks` dense blocks of 64 bytes a head.
KvLayout Dense(uint64_t base, const WorkerRank& rank, int64_t layers, int64_t heads_held = 1) {
  KvLayout layout = {rank, {}};
  for (int64_t i = 0; i < layers; ++i) {
    KvRegion region;
    region.layer_name = "layers." + std::to_string(i);
    region.layer_index = i;
    region.base_addr = base + 0x10000 * static_cast<uint64_t>(i);
    region.block_bytes = 64 * heads_held;
    region.kv_bytes = 64 * heads_held;
    region.num_blocks = 100;
    layout.regions.push_back(region);
  }
  return layout;
}

Pull PullOf(const KvLayout& decode) {
  Pull pull;
  WritePullLayout(decode, pull);
  return pull;
}

absl::StatusOr<WritePlan> Plan(const KvLayout& prefill, const KvLayout& decode,
                               const KvTraits& traits = {.groups = {{}}}) {
  return WritePlan::Create(prefill, traits, PullOf(decode));
}

std::vector<WritePiece> Pieces(const WritePlan& plan, const HandoffBlocks& prefill,
                               const std::vector<std::vector<int64_t>>& decode) {
  std::vector<WritePiece> pieces;
  const absl::Status status = plan.Append(prefill, decode, pieces);
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(WritePlanTest, NeighbouringBlocksOfDenseRegionsAreOnePiece) {
  const WritePlan plan = *Plan(Dense(kFrom, {}, 2), Dense(kTo, {}, 2));
  EXPECT_TRUE(plan.sends());
  EXPECT_EQ(plan.consumers_needed(), 1);
  EXPECT_THAT(Pieces(plan, {{3, 4, 5, 9}}, {{7, 8, 1}}),
              ElementsAre(WritePiece{kFrom + 4 * 64, kTo + 7 * 64, 128}, WritePiece{kFrom + 9 * 64, kTo + 64, 64},
                          WritePiece{kFrom + 0x10000 + 4 * 64, kTo + 0x10000 + 7 * 64, 128},
                          WritePiece{kFrom + 0x10000 + 9 * 64, kTo + 0x10000 + 64, 64}));
}

TEST(WritePlanTest, StridesBeyondThePayloadMakeAPieceABlock) {
  KvLayout decode = Dense(kTo, {}, 1);
  decode.regions[0].block_bytes = 256;
  EXPECT_THAT(
      Pieces(*Plan(Dense(kFrom, {}, 1), decode), {{3, 4}}, {{7, 8}}),
      ElementsAre(WritePiece{kFrom + 3 * 64, kTo + 7 * 256, 64}, WritePiece{kFrom + 4 * 64, kTo + 8 * 256, 64}));
}

TEST(WritePlanTest, HeadsOfALargerPrefillGoBesideOneAnother) {
  const KvTraits traits = {.total_kv_heads = 2, .groups = {{}}};
  const WritePlan plan = *Plan(Dense(kFrom, {2, 1}, 1), Dense(kTo, {1, 0}, 1, 2), traits);
  EXPECT_THAT(Pieces(plan, {{3}}, {{7}}), ElementsAre(WritePiece{kFrom + 3 * 64, kTo + 7 * 128 + 64, 64}));
}

TEST(WritePlanTest, PhysicalBlocksFollowTheirLogicalOneAndStatesHaveNone) {
  KvLayout prefill = Dense(kFrom, {}, 2);
  KvLayout decode = Dense(kTo, {}, 2);
  prefill.regions[1].group_index = decode.regions[1].group_index = 1;
  const KvTraits traits = {.groups = {{.physical_blocks = 17}, {.is_state = true}}};
  EXPECT_THAT(Pieces(*Plan(prefill, decode, traits), {{2}, {0, 2, 0}}, {{1}, {0, 5}}),
              ElementsAre(WritePiece{kFrom + 34 * 64, kTo + 17 * 64, 17 * 64},
                          WritePiece{kFrom + 0x10000 + 2 * 64, kTo + 0x10000 + 5 * 64, 64}));
}

TEST(WritePlanTest, LogicalIdsEndWhereTheirPhysicalBlocksDo) {
  const KvTraits traits = {.groups = {{.physical_blocks = 17}}};  // 100 kernel blocks are 5 logical ones.
  const WritePlan plan = *Plan(Dense(kFrom, {}, 1), Dense(kTo, {}, 1), traits);
  std::vector<WritePiece> pieces;
  EXPECT_TRUE(plan.Append({{4}}, {{4}}, pieces).ok());
  EXPECT_THAT(Message(plan.Append({{5}}, {{4}}, pieces)), HasSubstr("P's block id 5 is outside of its 5 blocks"));
  KvLayout decode = Dense(kTo, {}, 1);
  decode.regions[0].base_addr = UINT64_MAX - 64 * 100;
  EXPECT_THAT(Message(Plan(Dense(kFrom, {}, 1), decode, traits)->Append({{4}}, {{5}}, pieces)),
              HasSubstr("D's block id 5"));
  EXPECT_THAT(pieces, SizeIs(1));
}

TEST(WritePlanTest, SharedMemoryIsWrittenForTheBlocksOfEveryGroup) {
  KvLayout prefill = Dense(kFrom, {}, 1);
  prefill.regions[0].group_index = kSharedGroup;
  prefill.regions[0].shared_group_ids = {1, 0};
  KvLayout decode = prefill;
  decode.regions[0].base_addr = kTo;
  EXPECT_THAT(Pieces(*Plan(prefill, decode, {.groups = {{}, {}}}), {{1}, {2}}, {{3}, {4}}),
              ElementsAre(WritePiece{kFrom + 2 * 64, kTo + 4 * 64, 64}, WritePiece{kFrom + 64, kTo + 3 * 64, 64}));
}

TEST(WritePlanTest, RanksThatHoldTheSameBytesOnlyAcknowledge) {
  const KvTraits mla = {.is_mla = true, .groups = {{}}};
  const WritePlan first = *Plan(Dense(kFrom, {4, 2}, 1), Dense(kTo, {2, 1}, 1), mla);
  const WritePlan second = *Plan(Dense(kFrom, {4, 3}, 1), Dense(kTo, {2, 1}, 1), mla);
  EXPECT_TRUE(first.sends());
  EXPECT_FALSE(second.sends());
  EXPECT_EQ(second.consumers_needed(), 1);
  EXPECT_THAT(Pieces(second, {{3}}, {{7}}), IsEmpty());
  std::vector<WritePiece> pieces;
  EXPECT_FALSE(second.Append({{}}, {{7}}, pieces).ok());  // D hears the same from every rank.
}

TEST(WritePlanTest, WorkerWithoutDecodesLayersOnlyAcknowledges) {
  KvLayout decode = Dense(kTo, {.pp_size = 2, .pp_rank = 1}, 1);
  decode.regions[0].layer_name = "layers.5";
  const WritePlan plan = *Plan(Dense(kFrom, {}, 2), decode);
  EXPECT_FALSE(plan.sends());
  EXPECT_EQ(plan.consumers_needed(), 2);
}

TEST(WritePlanTest, NothingToWriteIsFineWhateverPrefillHolds) {
  const WritePlan plan = *Plan(Dense(kFrom, {}, 1), Dense(kTo, {}, 1));
  EXPECT_THAT(Pieces(plan, {{1, 2}}, {}), IsEmpty());
  EXPECT_THAT(Pieces(plan, {{1, 2}}, {{}}), IsEmpty());
  EXPECT_THAT(Pieces(plan, {}, {{}}), IsEmpty());
  EXPECT_THAT(Pieces(plan, {{}}, {{}}), IsEmpty());
}

TEST(WritePlanTest, FailedRequestLeavesTheOthersPieces) {
  const WritePlan plan = *Plan(Dense(kFrom, {}, 1), Dense(kTo, {}, 1));
  std::vector<WritePiece> pieces = Pieces(plan, {{1}}, {{2}});
  EXPECT_THAT(Message(plan.Append({{1}}, {{2, 3}}, pieces)), HasSubstr("P num blocks less than D"));
  EXPECT_THAT(Message(plan.Append({{1}, {2}}, {{2}, {3}}, pieces)), HasSubstr("KV group count mismatch"));
  EXPECT_THAT(Message(plan.Append({}, {{2}}, pieces)), HasSubstr("KV group count mismatch: 0 of P"));
  EXPECT_THAT(Message(plan.Append({{100}}, {{2}}, pieces)), HasSubstr("P's block id 100"));
  EXPECT_THAT(pieces, SizeIs(1));
  EXPECT_TRUE(plan.Append({{99}}, {{2}}, pieces).ok());
  EXPECT_THAT(pieces, SizeIs(2));
}

TEST(WritePlanTest, DecodeAddressesEndWithinTheAddressSpace) {
  KvLayout decode = Dense(kTo, {}, 1);
  decode.regions[0].base_addr = UINT64_MAX - 64 * 10;
  const WritePlan plan = *Plan(Dense(kFrom, {}, 1), decode);
  std::vector<WritePiece> pieces;
  EXPECT_TRUE(plan.Append({{1}}, {{9}}, pieces).ok());
  for (const int64_t id : {int64_t{10}, INT64_MAX, int64_t{-1}, INT64_MIN}) {
    EXPECT_THAT(Message(plan.Append({{1}}, {{id}}, pieces)), HasSubstr("D's block id"));
  }
}

TEST(WritePlanTest, TooManyPiecesAreRefusedBeforeMemoryIsTaken) {
  KvLayout prefill = Dense(kFrom, {}, 64);
  KvLayout decode = Dense(kTo, {}, 64);
  for (KvRegion& region : prefill.regions) region.num_blocks = 1'000'000;
  for (KvRegion& region : decode.regions) region.block_bytes = 128;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 300'000; ++i) ids.push_back(i);
  std::vector<WritePiece> pieces;
  const absl::Status status = Plan(prefill, decode)->Append({ids}, {ids}, pieces);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(pieces, IsEmpty());
}

TEST(WritePlanTest, PullThatDoesNotFitIsRefusedAsAWhole) {
  const auto error = [](const KvLayout& prefill, const Pull& pull, const KvTraits& traits = {.groups = {{}}}) {
    const absl::Status status = WritePlan::Create(prefill, traits, pull).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(Message(status));
  };
  EXPECT_THAT(error({}, PullOf(Dense(kTo, {}, 1))), HasSubstr("0 KV regions"));
  EXPECT_THAT(error(Dense(kFrom, {}, 1), Pull()), HasSubstr("size 0"));
  EXPECT_THAT(error(Dense(kFrom, {}, 1), PullOf(Dense(kTo, {}, 2))), HasSubstr("D only"));
  EXPECT_THAT(error(Dense(kFrom, {2, 1}, 1), PullOf(Dense(kTo, {2, 0}, 1))), HasSubstr("does not pair"));
  EXPECT_THAT(error(Dense(kFrom, {2, 1}, 1), PullOf(Dense(kTo, {3, 0}, 1))), HasSubstr("do not divide"));
  EXPECT_THAT(error(Dense(kFrom, {}, 1), PullOf(Dense(kTo, {}, 1, 2))), HasSubstr("64 bytes for 1 heads"));
  EXPECT_THAT(error(Dense(kFrom, {.pp_size = 2, .pp_rank = 0}, 1), PullOf(Dense(kTo, {.pp_size = 2, .pp_rank = 1}, 1))),
              HasSubstr("pipeline rank 1"));
  KvLayout row = Dense(kTo, {.pp_size = 2}, 1);
  row.regions[0].row_offset = 0;
  EXPECT_THAT(error(Dense(kFrom, {}, 1), PullOf(row)), HasSubstr("packed KV rows"));
}

TEST(WritePlanTest, StockPeerWithoutPipelineRankIsTakenAtItsWord) {
  Pull pull = PullOf(Dense(kTo, {.pp_size = 2, .pp_rank = 1}, 1));
  pull.remote_pp_rank = std::nullopt;
  EXPECT_TRUE(WritePlan::Create(Dense(kFrom, {.pp_size = 2, .pp_rank = 1}, 1), {.groups = {{}}}, pull).ok());
}

}  // namespace
}  // namespace tenure::pd
