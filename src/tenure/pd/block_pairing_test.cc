#include "tenure/pd/block_pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tenure/base/random.h"
#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<int64_t>;

std::vector<BlockRun> Pair(const Ids& prefill, const Ids& decode, bool is_state = false) {
  std::vector<BlockRun> runs = {{9, 9, 9}};
  const absl::Status status = PairBlocks(prefill, decode, is_state, {}, runs);
  EXPECT_TRUE(status.ok()) << status;
  return runs;
}

std::string Error(const Ids& prefill, const Ids& decode, bool is_state, const BlockLimits& limits) {
  std::vector<BlockRun> runs = {{9, 9, 9}};
  const absl::Status status = PairBlocks(prefill, decode, is_state, limits, runs);
  EXPECT_THAT(runs, IsEmpty());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(Message(status));
}

TEST(BlockPairingTest, BlocksThatStepByOneOnBothSidesAreOneRun) {
  EXPECT_THAT(Pair({4, 5, 6}, {1, 2, 3}), ElementsAre(BlockRun{4, 1, 3}));
  EXPECT_THAT(Pair({4, 5, 7}, {1, 2, 3}), ElementsAre(BlockRun{4, 1, 2}, BlockRun{7, 3, 1}));
  EXPECT_THAT(Pair({4, 5, 6}, {1, 3, 4}), ElementsAre(BlockRun{4, 1, 1}, BlockRun{5, 3, 2}));
  EXPECT_THAT(Pair({6, 5, 4}, {3, 2, 1}), ElementsAre(BlockRun{6, 3, 1}, BlockRun{5, 2, 1}, BlockRun{4, 1, 1}));
}

TEST(BlockPairingTest, DecodeAsksForTheEndOfWhatPrefillHas) {
  EXPECT_THAT(Pair({4, 5, 6}, {8}), ElementsAre(BlockRun{6, 8, 1}));
  EXPECT_THAT(Pair({4, 5, 6}, {}), IsEmpty());
  EXPECT_THAT(Pair({}, {}), IsEmpty());
}

TEST(BlockPairingTest, NullIdsArePlaceholdersInStateGroupsAndBlocksInOthers) {
  EXPECT_THAT(Pair({0, 0, 7, 0}, {0, 3}, true), ElementsAre(BlockRun{7, 3, 1}));
  EXPECT_THAT(Pair({5, 0, 6}, {2, 0, 0, 3}, true), ElementsAre(BlockRun{5, 2, 2}));
  EXPECT_THAT(Pair({0, 0}, {0}, true), IsEmpty());
  EXPECT_THAT(Pair({5, 0, 6}, {2, 3}, false), ElementsAre(BlockRun{0, 2, 1}, BlockRun{6, 3, 1}));
}

TEST(BlockPairingTest, FewerBlocksOnPrefillAreAnError) {
  EXPECT_THAT(Error({4, 5}, {1, 2, 3}, false, {}), HasSubstr("P num blocks less than D: 2 of P, 3 asked for"));
  EXPECT_THAT(Error({4, 0, 0}, {1, 2}, true, {}), HasSubstr("1 of P, 2 asked for"));
  // Edge 13: a prefill that has finished without blocks is ready, and has nothing that a decoder could ask for.
  Error({}, {1}, false, {});
}

TEST(BlockPairingTest, IdsOutsideOfTheirSideAreAnError) {
  EXPECT_THAT(Error({10}, {1}, false, {.from = 10, .to = 100}), HasSubstr("P's block id 10 is outside of its 10"));
  EXPECT_THAT(Error({9}, {100}, false, {.from = 10, .to = 100}), HasSubstr("D's block id 100"));
  Error({-1}, {1}, false, {});
  Error({1}, {-1}, false, {});
  Error({1}, {INT64_MIN}, true, {});
  Error({1, INT64_MAX}, {2, 3}, false, {.from = 10, .to = 100});
}

TEST(BlockPairingTest, PrefillBlocksThatNobodyAsksForMayBeAnything) {
  std::vector<BlockRun> runs;
  EXPECT_TRUE(PairBlocks(Ids{99, 3}, Ids{1}, false, {.from = 10, .to = 100}, runs).ok());
  EXPECT_THAT(runs, ElementsAre(BlockRun{3, 1, 1}));
}

TEST(BlockPairingTest, RunsSpellOutThePairsInOrder) {
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto list = [&](int64_t length) {
      Ids ids;
      for (int64_t id = random.Between(1, 5); std::ssize(ids) < length; id += random.Chance(0.7) ? 1 : 3) {
        ids.push_back(id);
      }
      return ids;
    };
    const Ids prefill = list(random.Between(0, 30));
    const Ids decode = list(random.Between(0, std::ssize(prefill)));
    std::vector<std::pair<uint64_t, uint64_t>> expected;
    std::vector<std::pair<uint64_t, uint64_t>> pairs;
    for (size_t i = 0; i < decode.size(); ++i)
      expected.push_back({prefill[prefill.size() - decode.size() + i], decode[i]});
    for (const BlockRun& run : Pair(prefill, decode)) {
      for (uint64_t i = 0; i < run.count; ++i) pairs.push_back({run.from + i, run.to + i});
    }
    EXPECT_EQ(pairs, expected);
  }
}

}  // namespace
}  // namespace tenure::pd
