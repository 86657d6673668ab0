// The blocks of a partial tail: the vectors of store_connector spec §14.10.
#include "tenure/engine/partial_tail.h"

#include <gtest/gtest.h>

#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using kv::testing::Config;
using kv::testing::Full;
using kv::testing::State;
using Puts = std::vector<std::pair<BlockId, int64_t>>;  // Blocks and tokens of group 0.

struct Case {
  kv::GroupSpec full = Full(4);
  int64_t prompt = 45;
  int64_t completed = 45;
  int64_t state = 44;  // Where the state was handed over; 0: none.
  int64_t hashes = 11;
  bool publish = false;
  std::vector<BlockId> table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
};

Puts PutsOf(const Case& c) {
  const kv::CacheConfig config = Config(4, 16, true, {c.full, State(16)});
  const std::vector<std::vector<BlockId>> tables = {c.table, {21, 22, 23}};
  std::vector<BoundaryPut> states;
  if (c.state != 0) states.push_back({kv::GroupIndex(1), 23, Tokens(c.state)});
  Puts puts;
  for (const BoundaryPut& put : PartialTailPuts(config, {.num_prompt_tokens = Tokens(c.prompt),
                                                        .completed = Tokens(c.completed),
                                                        .num_hashes = c.hashes,
                                                        .publish = c.publish,
                                                        .blocks = tables,
                                                        .states = states})) {
    EXPECT_EQ(put.group, kv::GroupIndex(0));
    puts.emplace_back(put.block, put.tokens.value());
  }
  return puts;
}

const Puts kWhole = {{9, 36}, {10, 40}, {11, 44}};

TEST(PartialTailTest, GoesFromTheLastWholeSaveToTheCheckpoint) {
  EXPECT_EQ(PutsOf({}), kWhole);
  EXPECT_EQ(PutsOf({.full = Full(16)}), (Puts{{3, 44}}));
}

TEST(PartialTailTest, IsDueOnlyForAStateAtTheCheckpointOrOnTheSaveOfThePrompt) {
  EXPECT_EQ(PutsOf({.state = 36}), Puts());
  EXPECT_EQ(PutsOf({.prompt = 49, .completed = 49}), Puts());
  EXPECT_EQ(PutsOf({.state = 0}), Puts());
  EXPECT_EQ(PutsOf({.state = 0, .publish = true}), kWhole);
  // The checkpoint of 48 tokens is at a block's end: normal saves have it.
  EXPECT_EQ(PutsOf({.prompt = 49, .completed = 49, .state = 48, .hashes = 12}), Puts());
}

TEST(PartialTailTest, EagleGroupsNeedTheirProofToo) {
  EXPECT_EQ(PutsOf({.full = Full(4, true), .state = 40}), kWhole);
  EXPECT_EQ(PutsOf({.full = Full(4, true), .completed = 43, .state = 40}), Puts());
  EXPECT_EQ(PutsOf({.full = Full(8, true), .state = 40}), (Puts{{5, 40}, {6, 44}}));
}

TEST(PartialTailTest, LeavesOutWhatIsNotThere) {
  EXPECT_EQ(PutsOf({.hashes = 10}), Puts()) << "the checkpoint has no hash";
  EXPECT_EQ(PutsOf({.completed = 43}), Puts());
  EXPECT_EQ(PutsOf({.table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 11}}), (Puts{{9, 36}, {11, 44}}));
  EXPECT_EQ(PutsOf({.table = {1, 2, 3, 4, 5, 6, 7, 8, 9}}), (Puts{{9, 36}}));
  EXPECT_EQ(PutsOf({.prompt = 4, .completed = 4, .state = 0, .publish = true}), Puts()) << "the checkpoint is at 0";
}

}  // namespace
}  // namespace tenure::engine
