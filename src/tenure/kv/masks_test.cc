// The vectors of the store_connector spec §14.1 to §14.4 and the closed forms of load masks.
#include "tenure/kv/masks.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/kv/hit.h"
#include "tenure/kv/random_case_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::kv {
namespace {

using testing::Chunked;
using testing::Config;
using testing::Full;
using testing::State;
using testing::Window;

std::string Text(const ChunkMask& mask) { return mask.is_all() ? "ALL" : mask.ToString(); }
std::vector<std::string> Texts(const std::vector<ChunkMask>& masks) {
  std::vector<std::string> texts;
  for (const ChunkMask& mask : masks) texts.push_back(Text(mask));
  return texts;
}
using Strings = std::vector<std::string>;

struct MaskVector {
  GroupSpec spec;
  int64_t start;
  int64_t end;
  std::optional<int64_t> alignment;
  std::optional<int64_t> retention;
  std::vector<int64_t> boundaries;
  std::string mask;
};

std::optional<Tokens> ToTokens(std::optional<int64_t> value) {
  return value.has_value() ? std::optional<Tokens>(*value) : std::nullopt;
}

void ExpectMasks(const std::vector<MaskVector>& vectors) {
  for (size_t i = 0; i < vectors.size(); ++i) {
    const MaskVector& v = vectors[i];
    std::vector<Tokens> boundaries;
    for (const int64_t boundary : v.boundaries) boundaries.emplace_back(boundary);
    const ReachableQuery query = {v.start, v.end, ToTokens(v.alignment), ToTokens(v.retention), boundaries};
    EXPECT_EQ(Text(ReachableMask(v.spec, query)), v.mask) << "vector " << i;
  }
}

constexpr std::nullopt_t kDense = std::nullopt;

TEST(ReachableMask, KeepsWindowTailsOfEveryBoundary) {
  ExpectMasks({{Window(8, 8), 0, 8, 32, kDense, {}, "00010001"},
               {Window(8, 16), 0, 8, 32, kDense, {}, "00110011"},
               {Window(8, 17), 0, 8, 32, kDense, {}, "00110011"},
               {Window(8, 18), 0, 8, 32, kDense, {}, "01110111"},
               {Window(8, 8, true), 0, 8, 32, kDense, {}, "00011001"},
               {Window(8, 16, true), 0, 12, 32, kDense, {}, "001110111011"},
               {Window(8, 24, true), 0, 8, 32, kDense, {}, "ALL"},
               {Window(8, 25, true), 0, 8, 32, kDense, {}, "ALL"},
               {Window(8, 26), 0, 8, 32, kDense, {}, "ALL"},
               {Window(8, 33), 0, 8, 32, kDense, {}, "ALL"},
               {Window(8, 8), 0, 8, 12, kDense, {}, "ALL"},
               {Window(8, 8), 0, 8, std::nullopt, kDense, {}, "ALL"},
               {Window(8, 16), 5, 16, 32, kDense, {}, "01100110011"},
               {Window(8, 1), 0, 8, 32, kDense, {}, "00000000"},
               {Window(8, 1, true), 0, 8, 32, kDense, {}, "00001000"},
               {Window(64, 128), 0, 8, 256, kDense, {}, "00110011"},
               {Window(64, 512), 0, 8, 256, kDense, {}, "ALL"}});
}

TEST(ReachableMask, KeepsWindowTailsByRetention) {
  ExpectMasks({{Window(8, 8), 0, 16, 32, 64, {}, "0000000100000001"},
               {Window(8, 8), 0, 16, 32, 0, {}, "0000000000000000"},
               {Window(8, 8), 0, 16, 32, 0, {99}, "0000000000010000"},
               {Window(8, 16), 0, 16, 32, 0, {99}, "0000000000110000"},
               {Window(8, 16), 0, 16, 32, 64, {99}, "0000001100110011"},
               {Window(8, 16, true), 0, 16, 32, 0, {32, 64}, "0011101110000000"},
               {Window(8, 16, true), 9, 16, 32, 64, {64}, "0000011"}});
}

TEST(ReachableMask, KeepsStatesByRetention) {
  ExpectMasks({{State(32), 0, 8, 32, kDense, {}, "ALL"},
               {State(32), 0, 8, 32, 0, {}, "00000000"},
               {State(32), 0, 8, 32, 0, {200}, "00000100"},
               {State(32), 0, 8, 32, 0, {255}, "00000010"},
               {State(32), 0, 8, 32, 64, {}, "01010101"},
               {State(32), 3, 8, 32, 64, {}, "10101"},
               {State(32), 0, 8, 32, 32, {}, "ALL"},
               {State(32), 0, 8, 32, 96, {200}, "00100100"},
               {State(16), 0, 16, 64, 0, {200}, "0000000000010000"},
               {State(16), 0, 16, 64, 128, {200}, "0000000100010001"},
               {State(16), 5, 16, 64, 128, {64}, "00100000001"}});
}

TEST(ReachableMask, KeepsAllOfFullAndChunked) {
  ExpectMasks({{Full(8), 0, 8, 32, 0, {}, "ALL"}, {Chunked(8, 64), 0, 8, 32, 0, {}, "ALL"}});
}

std::vector<int64_t> Boundaries(int64_t tokens, bool eagle) {
  std::vector<int64_t> values;
  for (const Tokens boundary : ReplayBoundaries(Tokens(tokens), Tokens(32), eagle)) values.push_back(boundary.value());
  return values;
}

TEST(ReplayBoundaries, AreWhereAPromptIsResumed) {
  using Values = std::vector<int64_t>;
  EXPECT_EQ(Boundaries(100, false), (Values{99}));
  EXPECT_EQ(Boundaries(96, false), (Values{95}));
  EXPECT_EQ(Boundaries(1, false), (Values{0}));
  EXPECT_EQ(Boundaries(100, true), (Values{64}));
  EXPECT_EQ(Boundaries(96, true), (Values{32, 64}));
  EXPECT_EQ(Boundaries(97, true), (Values{64}));
  EXPECT_EQ(Boundaries(64, true), (Values{0, 32}));
  EXPECT_EQ(Boundaries(31, true), (Values{0}));
}

TEST(EagleProofMargin, IsTheHashUnitInsideFineBlocks) {
  EXPECT_EQ(EagleProofMargin(Tokens(64), Tokens(16), true), Tokens(16));
  EXPECT_EQ(EagleProofMargin(Tokens(64), Tokens(16), false), Tokens(64));
  EXPECT_EQ(EagleProofMargin(Tokens(16), Tokens(16), true), Tokens(16));
}

TEST(StateCheckpoint, LeavesATokenToCompute) {
  const auto checkpoint = [](int64_t tokens, bool eagle) {
    return StateCheckpoint(Tokens(tokens), Tokens(4), eagle).value();
  };
  EXPECT_EQ(checkpoint(45, false), 44);
  EXPECT_EQ(checkpoint(44, false), 40);
  EXPECT_EQ(checkpoint(4, false), 0);
  EXPECT_EQ(checkpoint(5, false), 4);
  EXPECT_EQ(checkpoint(0, false), 0);
  EXPECT_EQ(checkpoint(45, true), 40);
  EXPECT_EQ(checkpoint(48, true), 44);
  EXPECT_EQ(checkpoint(8, true), 4);
  EXPECT_EQ(checkpoint(3, true), 0);
}

Strings Store(const CacheConfig& config, int64_t length, std::optional<int64_t> prompt,
              std::optional<int64_t> retention, int64_t start = 0) {
  return Texts(StoreMask(config, {Tokens(length), Tokens(start), ToTokens(prompt), ToTokens(retention)}));
}

TEST(StoreMask, FollowsRetention) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8)});
  EXPECT_EQ(Store(config, 128, 100, kDense), (Strings{"ALL", "0001000100010001"}));
  EXPECT_EQ(Store(config, 128, 100, 0), (Strings{"ALL", "0000000000010000"}));
  EXPECT_EQ(Store(config, 128, 100, 64), (Strings{"ALL", "0000000100010001"}));
  EXPECT_EQ(Store(config, 128, 100, 128), (Strings{"ALL", "0000000000010001"}));
  EXPECT_EQ(Store(config, 128, 100, 0, 64), (Strings{"ALL", "00010000"}));
  EXPECT_EQ(Store(config, 128, std::nullopt, 0), (Strings{"ALL", "0000000000000000"}));
  EXPECT_EQ(Store(config, 96, 96, 0), (Strings{"ALL", "000000010000"}));
}

TEST(StoreMask, KeepsTheProofOfEagleWindows) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 16)}, true);
  EXPECT_EQ(Store(config, 128, 128, 0), (Strings{"ALL", "0000001110111000"}));
  EXPECT_EQ(Store(config, 128, 100, 0), (Strings{"ALL", "0000001110000000"}));
  EXPECT_EQ(Store(config, 32, 40, 0), (Strings{"ALL", "1000"}));
  EXPECT_EQ(Texts(LookupMask(config, Tokens(128))), (Strings{"ALL", "0011101110111011"}));
}

TEST(StoreMask, LeavesStatesToTheirBoundaries) {
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  EXPECT_EQ(Store(config, 64, 64, kDense, 16), (Strings{"ALL", "000"}));
  EXPECT_EQ(Texts(LookupMask(config, Tokens(64))), (Strings{"ALL", "ALL"}));
}

TEST(LookupMask, IgnoresRetention) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8)});
  EXPECT_EQ(Texts(LookupMask(config, Tokens(128))), (Strings{"ALL", "0001000100010001"}));
}

TEST(LookupMask, HandlesManyBlockSizes) {
  const CacheConfig config = Config(4, 256, false, {Full(256), Window(64, 128), Window(64, 512), Window(4, 16)});
  const std::string quarter = std::string(60, '0') + "1111";
  EXPECT_EQ(Texts(LookupMask(config, Tokens(512))), (Strings{"ALL", "00110011", "ALL", quarter + quarter}));
}

TEST(LookupMask, OfMergedGroupsIsEagleWhenOneIs) {
  const CacheConfig config = Config(8, 32, false, {Window(8, 8), Window(8, 8, true), Full(32)});
  EXPECT_EQ(Texts(LookupMask(config, Tokens(64))), (Strings{"00011001", "00011001", "ALL"}));
}

TEST(LoadMask, IsTheTailThatALoadReads) {
  const auto window = [](int64_t tokens) {
    return Texts(LoadMask(Config(8, 8, false, {Window(8, tokens)}), Tokens(64)));
  };
  EXPECT_EQ(window(1), Strings{"00000001"});
  EXPECT_EQ(window(8), Strings{"00000001"});
  EXPECT_EQ(window(16), Strings{"00000011"});
  EXPECT_EQ(window(17), Strings{"00000011"});
  EXPECT_EQ(window(18), Strings{"00000111"});
  EXPECT_EQ(window(100), Strings{"11111111"});
  EXPECT_EQ(Texts(LoadMask(Config(16, 16, false, {Chunked(16, 64)}), Tokens(112))), Strings{"0000111"});
  EXPECT_EQ(Texts(LoadMask(Config(4, 16, true, {Full(16), State(16)}), Tokens(36))), (Strings{"111", "001"}));
  EXPECT_EQ(Texts(LoadMask(Config(8, 32, false, {Full(32), Window(8, 16)}), Tokens(64))), (Strings{"11", "00000011"}));
  EXPECT_EQ(Texts(LoadMask(Config(8, 32, false, {Full(32), Window(8, 16)}), Tokens(0))), (Strings{"", ""}));
}

TEST(LoadSet, NamesTheTailByItsBoundary) {
  const CacheConfig config = Config(4, 16, true, {Full(16), State(16)});
  const auto key = [](int32_t group, int64_t hash) { return GroupHash{GroupIndex(group), HashIndex(hash)}; };
  EXPECT_EQ(LoadSet(config, {Tokens(36), {Tokens(48), Tokens(36)}}),
            (std::vector<GroupHash>{key(0, 3), key(0, 7), key(0, 11), key(1, 8)}));
  EXPECT_TRUE(LoadSet(config, {}).empty());
}

TEST(LoadSet, LeavesOutWhatALoadPassesOver) {
  const CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8)}, true);
  const auto key = [](int32_t group, int64_t hash) { return GroupHash{GroupIndex(group), HashIndex(hash)}; };
  EXPECT_EQ(LoadSet(config, {Tokens(64), {Tokens(64), Tokens(64)}}),
            (std::vector<GroupHash>{key(0, 3), key(0, 7), key(1, 7)}));
}

}  // namespace
}  // namespace tenure::kv
