// Masks and load sets on random models against their definition, boundary by boundary.
#include <gtest/gtest.h>

#include <cstdio>

#include "tenure/base/test_scale_testing.h"
#include "tenure/kv/coordinator_testing.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/masks.h"
#include "tenure/kv/random_case_testing.h"

namespace tenure::kv {
namespace {

using testing::CaseCounts;
using testing::Describe;
using testing::MakeRandomCase;
using testing::PresenceSet;
using testing::RandomCase;

constexpr int64_t kCases = 100'000;

GroupIndex At(size_t group) { return GroupIndex(static_cast<int32_t>(group)); }

// Runs `property` on the random cases; it returns the hit of the case, and reports with the seed in scope.
template <typename Property>
void ForRandomCases(uint64_t first_seed, const Property& property) {
  CaseCounts counts;
  for (int64_t i = 0; i < RandomCases(kCases); ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    Random random(seed);
    const RandomCase one = MakeRandomCase(random);
    const CacheConfig config = testing::MustCreate(one.options);
    const int64_t hit = property(one, config, random);
    const Tokens last(std::max<int64_t>(one.num_tokens - 1, 0));
    counts.Count(config, one.presence, hit, RoundDown(last, config.hit_alignment()).value());
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed << ": " << Describe(one);
    }
  }
  std::printf("%s\n", counts.ToString().c_str());
  EXPECT_TRUE(counts.Enough()) << counts.ToString();
}

// The longest prompt that the case's hashes cover, in tokens.
int64_t Covered(const RandomCase& one, const CacheConfig& config) {
  const int64_t hash = config.hash_block_size().value();
  return std::min(one.num_tokens / hash, one.presence.num_hashes) * hash;
}

TEST(LookupMaskProperty, ClosedFormAgreesWithMask) {
  ForRandomCases(1, [](const RandomCase& one, const CacheConfig& config, Random&) {
    const Tokens length(Covered(one, config));
    const std::vector<ChunkMask> masks = LookupMask(config, length);
    for (size_t g = 0; g < masks.size(); ++g) {
      const int64_t chunks = length / config.groups()[g].block_size;
      EXPECT_TRUE(masks[g].is_all() || masks[g].size() == chunks);
      for (int64_t i = 0; i < chunks; ++i) EXPECT_EQ(LookupMaskHas(config, At(g), i), masks[g][i]) << g << " " << i;
    }
    return testing::OracleLookup(config, one.presence, one.num_tokens).length.value();
  });
}

// What a load of `boundary` tokens reads is asked for by lookups, with the chunk after it where eagle needs its proof.
// A window of one token is the exception: its load reads a chunk that no mask keeps, so it never hits.
TEST(LookupMaskProperty, HasAllThatAHitAtAnyAlignedBoundaryReads) {
  ForRandomCases(2'000'000, [](const RandomCase& one, const CacheConfig& config, Random&) {
    const int64_t covered = Covered(one, config);
    const int64_t step = config.scheduler_block_size().value();
    for (int64_t boundary = step; boundary <= covered; boundary += step) {
      for (size_t g = 0; g < config.groups().size(); ++g) {
        const GroupSpec& spec = config.UnitOf(At(g)).spec;
        const ChunkRange range = LoadRange(config, At(g), Tokens(boundary));
        const bool unreachable = spec.kind == GroupKind::kWindow && spec.window == Tokens(1);
        for (int64_t i = range.first; i < range.end && !unreachable; ++i) {
          EXPECT_TRUE(LookupMaskHas(config, At(g), i)) << "boundary " << boundary << " group " << g << " chunk " << i;
        }
        if (spec.kind == GroupKind::kWindow && spec.eagle) {
          EXPECT_TRUE(LookupMaskHas(config, At(g), range.end)) << "proof at " << boundary << " group " << g;
        }
      }
    }
    return testing::OracleLookup(config, one.presence, one.num_tokens).length.value();
  });
}

// A window chunk outside every boundary's reach is never asked for: the mask is no larger than its definition.
TEST(LookupMaskProperty, HasNothingThatNoBoundaryReads) {
  ForRandomCases(4'000'000, [](const RandomCase& one, const CacheConfig& config, Random&) {
    const int64_t step = config.scheduler_block_size().value();
    for (size_t g = 0; g < config.groups().size(); ++g) {
      const GroupSpec& spec = config.UnitOf(At(g)).spec;
      if (spec.kind != GroupKind::kWindow) continue;
      const int64_t chunks = Covered(one, config) / spec.block_size.value();
      const int64_t period = step / spec.block_size.value();
      std::vector<bool> read(static_cast<size_t>(chunks), false);
      // The last boundary whose window or proof reaches into the prompt is the one after its end.
      for (int64_t end = period; end <= chunks + period; end += period) {
        const int64_t first = end - CeilDiv(spec.window - Tokens(1), spec.block_size);
        for (int64_t i = std::max<int64_t>(first, 0); i < end + (spec.eagle ? 1 : 0) && i < chunks; ++i) {
          read[static_cast<size_t>(i)] = true;
        }
      }
      // With eagle the run of boundary 0 is its proof; a mask of "all" also keeps the first chunks, which short runs
      // use.
      const int64_t need = CeilDiv(spec.window - Tokens(1), spec.block_size) + (spec.eagle ? 1 : 0);
      if (need >= period) continue;
      for (int64_t i = 0; i < chunks; ++i) {
        EXPECT_EQ(LookupMaskHas(config, At(g), i), read[static_cast<size_t>(i)]) << "group " << g << " chunk " << i;
      }
    }
    return testing::OracleLookup(config, one.presence, one.num_tokens).length.value();
  });
}

std::optional<Tokens> RandomRetention(Random& random, const CacheConfig& config) {
  if (random.Chance(0.2)) return std::nullopt;
  return config.scheduler_block_size() * random.Between(0, 4);
}

// Every boundary that the retention keeps: its load set, and the proof where a later chunk of the prompt has it.
bool Kept(const CacheConfig& config, const StoreQuery& query, int64_t boundary) {
  if (!query.retention.has_value()) return true;
  if (*query.retention > Tokens() && boundary % query.retention->value() == 0) return true;
  for (const Tokens replay :
       ReplayBoundaries(*query.num_prompt_tokens, config.scheduler_block_size(), config.any_eagle())) {
    if (RoundDown(replay, config.scheduler_block_size()) == Tokens(boundary)) return true;
  }
  return false;
}

TEST(StoreMaskProperty, KeepsAllThatAHitAtAKeptBoundaryReads) {
  ForRandomCases(6'000'000, [](const RandomCase& one, const CacheConfig& config, Random& random) {
    const int64_t step = config.scheduler_block_size().value();
    StoreQuery query;
    query.length = RoundDown(Tokens(Covered(one, config)), Tokens(step));
    query.num_prompt_tokens = Tokens(one.num_tokens);
    query.retention = RandomRetention(random, config);
    const std::vector<ChunkMask> masks = StoreMask(config, query);
    for (int64_t boundary = step; boundary <= query.length.value(); boundary += step) {
      if (!Kept(config, query, boundary)) continue;
      for (size_t g = 0; g < config.groups().size(); ++g) {
        const GroupSpec& spec = config.UnitOf(At(g)).spec;
        if (spec.kind == GroupKind::kState || (spec.kind == GroupKind::kWindow && spec.window == Tokens(1))) continue;
        const ChunkRange range = LoadRange(config, At(g), Tokens(boundary));
        for (int64_t i = range.first; i < range.end; ++i) {
          EXPECT_TRUE(masks[g][i]) << "boundary " << boundary << " group " << g << " chunk " << i;
        }
        const bool proof =
            spec.kind == GroupKind::kWindow && spec.eagle && Tokens(boundary) + spec.block_size <= query.length;
        if (proof) {
          EXPECT_TRUE(masks[g][range.end]) << "proof at " << boundary << " group " << g;
        }
      }
    }
    return testing::OracleLookup(config, one.presence, one.num_tokens).length.value();
  });
}

TEST(StoreMaskProperty, SuffixIsTheRestOfTheWholeAndWithinTheLookupMask) {
  ForRandomCases(8'000'000, [](const RandomCase& one, const CacheConfig& config, Random& random) {
    const Tokens step = config.scheduler_block_size();
    StoreQuery query;
    query.length = RoundDown(Tokens(Covered(one, config)), step);
    query.num_prompt_tokens = Tokens(one.num_tokens);
    query.retention = RandomRetention(random, config);
    const std::vector<ChunkMask> whole = StoreMask(config, query);
    query.start = Tokens(random.Between(0, query.length.value() + 1));
    const std::vector<ChunkMask> suffix = StoreMask(config, query);
    for (size_t g = 0; g < whole.size(); ++g) {
      const int64_t end = query.length / config.groups()[g].block_size;
      const int64_t skipped = std::min(end, CeilDiv(query.start, config.groups()[g].block_size));
      EXPECT_EQ(whole[g].is_all(), suffix[g].is_all());
      for (int64_t i = skipped; i < end; ++i) EXPECT_EQ(suffix[g][i - skipped], whole[g][i]) << g << " " << i;
      for (int64_t i = 0; i < end && !whole[g].is_all(); ++i) {
        // vLLM also keeps the proof of boundary 0 (§14.4: "1000"), which nothing asks for.
        const bool proof_of_zero = i == 0 && config.UnitOf(At(g)).spec.eagle;
        EXPECT_TRUE(!whole[g][i] || proof_of_zero || LookupMaskHas(config, At(g), i)) << g << " " << i;
      }
    }
    return testing::OracleLookup(config, one.presence, one.num_tokens).length.value();
  });
}

TEST(LoadSetProperty, IsTheLoadMaskWithTailsAndIsWhatTheHitFound) {
  ForRandomCases(10'000'000, [](const RandomCase& one, const CacheConfig& config, Random&) {
    const Hit hit = testing::OracleLookup(config, one.presence, one.num_tokens);
    EXPECT_TRUE(testing::MissingLoads(config, one.presence, hit).empty());
    // With nothing stored, what is missing is the load set, found by the oracle's own masks.
    PresenceSet nothing;
    nothing.num_hashes = one.presence.num_hashes;
    nothing.groups.resize(config.groups().size());
    EXPECT_EQ(LoadSet(config, hit), testing::MissingLoads(config, nothing, hit));
    if (hit.length > Tokens()) {
      const std::vector<std::string> expected = testing::OracleLoadMask(config, hit.length.value());
      const std::vector<ChunkMask> masks = LoadMask(config, hit.length);
      for (size_t g = 0; g < masks.size(); ++g) EXPECT_EQ(masks[g].ToString(), expected[g]);
    }
    return hit.length.value();
  });
}

}  // namespace
}  // namespace tenure::kv
