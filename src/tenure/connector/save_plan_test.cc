#include "tenure/connector/save_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/kv/masks.h"

namespace tenure::connector {
namespace {

using kv::GroupIndex;
using kv::GroupKind;
using kv::GroupSpec;
using kv::HashIndex;
using store::PutAnswer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GroupSpec Full(int64_t block) { return {GroupKind::kFull, Tokens(block), Tokens(), Tokens(), false}; }
GroupSpec Window(int64_t block, int64_t window) {
  return {GroupKind::kWindow, Tokens(block), Tokens(window), Tokens(), false};
}
GroupSpec State(int64_t block) { return {GroupKind::kState, Tokens(block), Tokens(), Tokens(), false}; }

kv::CacheConfig Config(int64_t hash_block, int64_t scheduler_block, std::vector<GroupSpec> groups) {
  auto config = kv::CacheConfig::Create({.hash_block_size = Tokens(hash_block),
                                         .scheduler_block_size = Tokens(scheduler_block),
                                         .fine = false,
                                         .use_eagle = false,
                                         .groups = std::move(groups)});
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

// (group, hash) pairs of a plan in order.
std::vector<std::pair<int, int64_t>> Pairs(const std::vector<SaveObject>& plan) {
  std::vector<std::pair<int, int64_t>> pairs;
  for (const SaveObject& object : plan) pairs.emplace_back(object.group.value(), object.hash.value());
  return pairs;
}

TEST(PlanSave, FullAttentionKeepsEveryWholeChunkEachOnThePrecedingOne) {
  const kv::CacheConfig config = Config(16, 16, {Full(16)});
  const std::vector<int32_t> ranks = {1};
  const auto plan = PlanSave(config, {Tokens(0), Tokens(60), Tokens(0), ranks}).value();
  ASSERT_THAT(Pairs(plan), ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(0, 2)));
  EXPECT_EQ(plan[0].parent, std::nullopt);
  EXPECT_EQ(plan[2].parent, (SaveObject::Parent{GroupIndex(0), 0, HashIndex(1)}));
  EXPECT_THAT(Pairs(PlanSave(config, {Tokens(32), Tokens(60), Tokens(0), ranks}).value()),
              ElementsAre(std::pair(0, 2)));
  EXPECT_TRUE(PlanSave(config, {Tokens(48), Tokens(60), Tokens(0), ranks}).value().empty());
}

// store_connector spec §14.10: full 32 + window 8, retention 0, prefill end 100.
TEST(PlanSave, AWindowKeepsTheTailOfThePromptsLastBoundary) {
  const kv::CacheConfig config = Config(8, 32, {Full(32), Window(8, 8)});
  const std::vector<int32_t> ranks = {1, 1};
  EXPECT_THAT(Pairs(PlanSave(config, {Tokens(0), Tokens(100), Tokens(0), ranks}).value()),
              ElementsAre(std::pair(0, 3), std::pair(0, 7), std::pair(0, 11), std::pair(1, 11)));
  EXPECT_THAT(Pairs(PlanSave(config, {Tokens(96), Tokens(130), Tokens(0), ranks}).value()),
              ElementsAre(std::pair(0, 15), std::pair(1, 15)));
}

TEST(PlanSave, StatesAndWindowsAreKeptAtTheSameMultiples) {
  const kv::CacheConfig config = Config(16, 16, {State(16), Full(16), Window(16, 16)});
  const std::vector<int32_t> ranks = {1, 1, 1};
  const auto plan = PlanSave(config, {Tokens(0), Tokens(100), Tokens(32), ranks}).value();
  EXPECT_THAT(Pairs(plan), ElementsAre(std::pair(1, 0), std::pair(1, 1), std::pair(1, 2), std::pair(1, 3),
                                       std::pair(1, 4), std::pair(1, 5), std::pair(2, 1), std::pair(2, 3),
                                       std::pair(2, 5), std::pair(0, 1), std::pair(0, 3), std::pair(0, 5)));
  for (const SaveObject& object : plan) {
    if (object.group == GroupIndex(1)) continue;
    EXPECT_EQ(object.parent, (SaveObject::Parent{GroupIndex(1), 0, object.hash}));
  }
}

TEST(PlanSave, AStateHangsOnTheLargerFullChunkThatHoldsItsLastToken) {
  const kv::CacheConfig config = Config(16, 64, {Full(64), State(16)});
  const std::vector<int32_t> ranks = {1, 1};
  const auto plan = PlanSave(config, {Tokens(0), Tokens(130), Tokens(0), ranks}).value();
  ASSERT_THAT(Pairs(plan), ElementsAre(std::pair(0, 3), std::pair(0, 7), std::pair(1, 7)));
  EXPECT_EQ(plan[2].parent, (SaveObject::Parent{GroupIndex(0), 0, HashIndex(7)}));
}

TEST(PlanSave, RanksHangOnTheSharedFullNamespaceInEqualRuns) {
  const kv::CacheConfig config = Config(16, 16, {Full(16), State(16)});
  const std::vector<int32_t> ranks = {2, 4};
  const auto plan = PlanSave(config, {Tokens(0), Tokens(17), Tokens(0), ranks}).value();
  std::vector<std::tuple<int, int, int>> parents;  // group, rank, parent rank (-1: none)
  for (const SaveObject& object : plan)
    parents.emplace_back(object.group.value(), object.rank, object.parent ? object.parent->rank : -1);
  EXPECT_THAT(parents, ElementsAre(std::tuple(0, 0, -1), std::tuple(0, 1, -1), std::tuple(1, 0, 0), std::tuple(1, 1, 0),
                                   std::tuple(1, 2, 1), std::tuple(1, 3, 1)));
}

TEST(PlanSave, WithoutFullAttentionNothingHasAParent) {
  const kv::CacheConfig config = Config(16, 16, {Window(16, 40), State(16)});
  const std::vector<int32_t> ranks = {1, 1};
  const auto plan = PlanSave(config, {Tokens(0), Tokens(100), Tokens(0), ranks}).value();
  EXPECT_EQ(plan.size(), 4u);  // Three window chunks and one state.
  for (const SaveObject& object : plan) EXPECT_EQ(object.parent, std::nullopt);
}

TEST(PlanSave, NamesABadField) {
  const kv::CacheConfig config = Config(16, 32, {Full(32), Window(16, 16)});
  const std::vector<int32_t> ranks = {1, 1};
  const auto error = [&](SaveQuery query) { return std::string(Message(PlanSave(config, query).status())); };
  EXPECT_THAT(error({Tokens(16), Tokens(100), Tokens(0), ranks}), HasSubstr("start 16"));
  EXPECT_THAT(error({Tokens(-32), Tokens(100), Tokens(0), ranks}), HasSubstr("start -32"));
  EXPECT_THAT(error({Tokens(0), Tokens(0), Tokens(0), ranks}), HasSubstr("num_tokens 0"));
  EXPECT_THAT(error({Tokens(0), Tokens(100), Tokens(48), ranks}), HasSubstr("state_every 48"));
  EXPECT_THAT(error({Tokens(0), Tokens(100), Tokens(0), std::span(ranks).first(1)}), HasSubstr("ranks"));
}

TEST(SaveProgress, AChainStopsAtItsFirstRefusalAndWhatHangsOnItIsSkipped) {
  const kv::CacheConfig config = Config(16, 16, {Full(16), State(16)});
  const std::vector<int32_t> ranks = {1, 1};
  const SaveQuery query{Tokens(0), Tokens(81), Tokens(16), ranks};  // Five chunks, five states.
  const auto plan = PlanSave(config, query).value();
  SaveProgress progress(config, query, plan);
  std::vector<std::pair<int, int64_t>> put;
  while (const SaveObject* object = progress.Next()) {
    put.emplace_back(object->group.value(), object->hash.value());
    progress.Record(put.size() == 3 ? PutAnswer::kRefusedFull : PutAnswer::kStored);
  }
  EXPECT_THAT(put, ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(0, 2), std::pair(1, 0), std::pair(1, 1)));
  EXPECT_EQ(progress.offset(), Tokens(32));
  EXPECT_EQ(progress.skipped(), 5);
}

TEST(SaveProgress, OnlyStoredAndExistsAdvanceTheOffset) {
  const kv::CacheConfig config = Config(16, 16, {Full(16)});
  const std::vector<int32_t> ranks = {1};
  const SaveQuery query{Tokens(16), Tokens(64), Tokens(0), ranks};
  const auto plan = PlanSave(config, query).value();
  for (const PutAnswer answer : {PutAnswer::kStored, PutAnswer::kExists, PutAnswer::kSizeDiffers, PutAnswer::kBusy,
                                 PutAnswer::kWaiting, PutAnswer::kRefusedFull, PutAnswer::kRefusedIndex,
                                 PutAnswer::kRefusedWaiting, PutAnswer::kRefusedSize, PutAnswer::kNotStored}) {
    SaveProgress progress(config, query, plan);
    EXPECT_EQ(progress.offset(), Tokens(16));
    ASSERT_NE(progress.Next(), nullptr);
    progress.Record(answer);
    const bool kept = answer == PutAnswer::kStored || answer == PutAnswer::kExists;
    EXPECT_EQ(progress.offset(), Tokens(kept ? 32 : 16)) << store::ToString(answer);
    EXPECT_EQ(progress.Next() != nullptr, kept) << store::ToString(answer);
  }
}

TEST(SaveProgress, ARefusalOnOneRankStopsThatRankOnly) {
  const kv::CacheConfig config = Config(16, 16, {Full(16)});
  const std::vector<int32_t> ranks = {2};
  const SaveQuery query{Tokens(0), Tokens(48), Tokens(0), ranks};
  const auto plan = PlanSave(config, query).value();
  SaveProgress progress(config, query, plan);
  std::vector<std::pair<int, int64_t>> put;  // (rank, hash)
  while (const SaveObject* object = progress.Next()) {
    put.emplace_back(object->rank, object->hash.value());
    progress.Record(object->rank == 1 && object->hash == HashIndex(1) ? PutAnswer::kBusy : PutAnswer::kStored);
  }
  EXPECT_THAT(put, ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(1, 1), std::pair(0, 2)));
  EXPECT_EQ(progress.offset(), Tokens(16));
}

TEST(ParentOf, AnObjectInsideAChunkHangsOnTheChunkBeforeOrAroundIt) {
  const kv::CacheConfig config = Config(4, 16, {State(16), Full(16), Window(16, 32)});
  const std::vector<int32_t> ranks = {1, 1, 1};
  const auto parent = [&](int group, int64_t hash) {
    const auto found = ParentOf(config, ranks, GroupIndex(group), 0, HashIndex(hash));
    return found ? std::pair(found->group.value(), found->hash.value()) : std::pair(-1, int64_t{-1});
  };
  EXPECT_EQ(parent(1, 2), std::pair(-1, int64_t{-1}));  // Inside the first chunk.
  EXPECT_EQ(parent(1, 3), std::pair(-1, int64_t{-1}));
  EXPECT_EQ(parent(1, 4), std::pair(1, int64_t{3}));
  EXPECT_EQ(parent(1, 7), std::pair(1, int64_t{3}));
  EXPECT_EQ(parent(1, 10), std::pair(1, int64_t{7}));
  for (const int group : {0, 2}) {
    EXPECT_EQ(parent(group, 0), std::pair(1, int64_t{3}));
    EXPECT_EQ(parent(group, 7), std::pair(1, int64_t{7}));
    EXPECT_EQ(parent(group, 8), std::pair(1, int64_t{11}));
  }
}

TEST(SaveOrderOfGroups, FullAttentionComesFirstAndStatesLast) {
  const kv::CacheConfig config = Config(16, 16, {State(16), Window(16, 32), Full(16), State(16), Full(16)});
  EXPECT_THAT(SaveOrderOfGroups(config),
              ElementsAre(GroupIndex(2), GroupIndex(4), GroupIndex(1), GroupIndex(0), GroupIndex(3)));
  EXPECT_EQ(FirstFullGroup(config), GroupIndex(2));
  EXPECT_EQ(FirstFullGroup(Config(16, 16, {Window(16, 32)})), std::nullopt);
}

TEST(SaveChains, WhatNobodyTriedCountsAsKeptAndTheEarliestLossCounts) {
  const std::vector<int32_t> ranks = {2, 1};
  SaveChains chains(ranks);
  const auto full = [](int32_t rank, int64_t hash) {
    return SaveObject{GroupIndex(0), rank, HashIndex(hash), std::nullopt};
  };
  const auto on = [](int32_t rank, int64_t hash) {
    return SaveObject{GroupIndex(1), 0, HashIndex(hash), SaveObject::Parent{GroupIndex(0), rank, HashIndex(hash)}};
  };
  EXPECT_TRUE(chains.IsReachable(on(0, 100)));
  chains.Record(full(0, 5), true);
  chains.Record(full(0, 9), false);
  EXPECT_EQ(chains.kept_end(GroupIndex(0), 0), HashIndex(6));
  EXPECT_TRUE(chains.stopped(GroupIndex(0), 0));
  EXPECT_FALSE(chains.stopped(GroupIndex(0), 1));
  EXPECT_FALSE(chains.IsReachable(full(0, 12)));
  EXPECT_TRUE(chains.IsReachable(full(1, 12)));
  EXPECT_TRUE(chains.IsReachable(on(0, 8)));
  EXPECT_FALSE(chains.IsReachable(on(0, 9)));
  EXPECT_TRUE(chains.IsReachable(on(1, 9)));
  chains.Record(full(0, 7), false);
  EXPECT_FALSE(chains.IsReachable(on(0, 8)));
  EXPECT_TRUE(chains.IsReachable(on(0, 6)));
  chains.Record(full(0, 12), true);  // In a chain that has ended nothing advances.
  EXPECT_EQ(chains.kept_end(GroupIndex(0), 0), HashIndex(6));
}

// What was planned and kept is exactly what a load of the prompt's own boundary reads, and of each multiple of
// state_every.
TEST(PlanSave, KeepsWhatALoadAtEveryKeptBoundaryReads) {
  const uint64_t seed = 20260307;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Random random(seed);
  int64_t with_multiples = 0;
  const int64_t cases = RandomCases(20'000);
  for (int64_t i = 0; i < cases; ++i) {
    const int64_t full_block = int64_t{16} << random.Below(3);
    const int64_t scheduler_block = std::max<int64_t>(full_block, 32);
    const kv::CacheConfig config =
        Config(16, scheduler_block, {Full(full_block), Window(16, random.Between(2, 100)), State(32)});
    const std::vector<int32_t> ranks = {1, 1, 1};
    const Tokens every(scheduler_block * random.Between(0, 4));
    const Tokens num_tokens(random.Between(1, 1000));
    const auto plan = PlanSave(config, {Tokens(0), num_tokens, every, ranks}).value();
    std::set<std::pair<int, int64_t>> kept;
    for (const auto& pair : Pairs(plan)) kept.insert(pair);
    ASSERT_EQ(kept.size(), plan.size());
    std::set<int64_t> boundaries = {(num_tokens.value() - 1) / scheduler_block * scheduler_block};
    if (every > Tokens(0)) {
      for (int64_t b = every.value(); b <= num_tokens.value(); b += every.value()) boundaries.insert(b);
    }
    with_multiples += boundaries.size() > 1;
    for (const int64_t boundary : boundaries) {
      if (boundary == 0) continue;
      for (int g = 0; g < 3; ++g) {
        const kv::ChunkRange load = kv::LoadRange(config, GroupIndex(g), Tokens(boundary));
        const int64_t per_chunk = config.HashesPerChunk(GroupIndex(g));
        for (int64_t chunk = load.first; chunk < load.end; ++chunk) {
          ASSERT_TRUE(kept.contains({g, (chunk + 1) * per_chunk - 1}))
              << "group " << g << " chunk " << chunk << " boundary " << boundary;
        }
      }
    }
  }
  EXPECT_GT(with_multiples, cases / 20) << "seed " << seed;
}

}  // namespace
}  // namespace tenure::connector
