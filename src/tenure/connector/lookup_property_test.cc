// Lookups over random stores of several ranks, unchanging and with evictions between any two calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>

#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/connector/lookup.h"
#include "tenure/connector/prompt_pool_testing.h"
#include "tenure/kv/random_case_testing.h"

namespace tenure::connector {
namespace {

using kv::testing::PresenceSet;
using kv::testing::RandomCase;
using store::FakePool;
using testing::PromptPool;

// A random prompt, its pool, and what the oracle finds there. Every rank may lack objects of its own.
struct Scene {
  Scene(uint64_t seed, bool shrink) : random(seed) {
    drawn = kv::testing::MakeRandomCase(random);
    config.emplace(kv::testing::MustCreate(drawn.options));
    closed = random.Chance(0.5);
    const std::array<int, 8> choices = {1, 1, 1, 2, 2, 3, 4, 8};
    const int ranks_max = choices[random.Below(choices.size())];
    std::vector<int> ranks;
    for (size_t g = 0; g < config->groups().size(); ++g) ranks.push_back(random.Chance(0.5) ? ranks_max : 1);
    prompt.emplace(*config, drawn.presence.num_hashes, ranks, closed);
    is_dear = random.Chance(0.5);
    if (is_dear) prompt->pool().MakeRoundsDear();
    everywhere = closed ? kv::testing::ClosedPart(*config, drawn.presence) : drawn.presence;
    const PresenceSet whole = everywhere;
    for (int rank = 0; rank < ranks_max; ++rank) InsertRank(whole, rank, ranks, shrink && random.Chance(0.2));
  }

  void InsertRank(PresenceSet present, int rank, const std::vector<int>& ranks, bool lacking) {
    for (size_t g = 0; lacking && g < present.groups.size(); ++g) {
      if (!present.groups[g].empty() && rank < ranks[g] && random.Chance(0.5)) {
        present.groups[g].erase(std::next(present.groups[g].begin(),
                                          random.Between(0, static_cast<int64_t>(present.groups[g].size()) - 1)));
      }
    }
    if (closed) present = kv::testing::ClosedPart(*config, present);
    for (size_t g = 0; g < present.groups.size(); ++g) {
      if (rank >= ranks[g]) continue;
      std::set<int64_t> both;
      std::set_intersection(everywhere.groups[g].begin(), everywhere.groups[g].end(), present.groups[g].begin(),
                            present.groups[g].end(), std::inserter(both, both.end()));
      everywhere.groups[g] = std::move(both);
    }
    prompt->InsertRank(present, rank);
  }

  std::string Describe() const { return fmt::format("closed {} {}", closed, kv::testing::Describe(drawn)); }

  Random random;
  RandomCase drawn;
  std::optional<kv::CacheConfig> config;
  bool closed = false;
  bool is_dear = false;  // Rounds are; then a short chain is leased ahead, what lies behind its end too.
  PresenceSet everywhere;
  std::optional<PromptPool> prompt;
};

template <typename Check>
void ForScenes(uint64_t seed, bool shrink, Check check) {
  kv::testing::CaseCounts counts;
  for (int64_t i = 0; i < RandomCases(100'000); ++i) {
    Scene scene(seed + static_cast<uint64_t>(i), shrink);
    const kv::Hit hit = check(scene);
    const Tokens longest = RoundDown(Tokens(scene.drawn.num_tokens), scene.config->hit_alignment());
    counts.Count(*scene.config, scene.drawn.presence, hit.length.value(), longest.value());
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed + static_cast<uint64_t>(i) << " " << scene.Describe();
  }
  std::cout << counts.ToString() << "\n";
  EXPECT_TRUE(counts.Enough()) << counts.ToString();
}

bool HasBrokenChain(const Scene& scene) {
  for (size_t g = 0; g < scene.config->groups().size(); ++g) {
    if (scene.config->groups()[g].kind != kv::GroupKind::kFull) continue;
    const int64_t per_chunk = scene.config->HashesPerChunk(kv::GroupIndex(static_cast<int32_t>(g)));
    bool missing = false;
    for (int64_t hash = per_chunk - 1; hash < scene.everywhere.num_hashes; hash += per_chunk) {
      const bool present = scene.everywhere.groups[g].contains(hash);
      if (missing && present) return true;
      missing |= !present;
    }
  }
  return false;
}

LookupOptions Options(kv::SearchMode mode) { return {mode, LeaseMode::kSelective, absl::Seconds(10)}; }

// Exhaustive is the oracle; tail-first is as design promises. Both lease exactly what a load reads.
TEST(LookupProperty, FindsAndLeasesTheHitOnAnUnchangingPool) {
  int64_t longer = 0;
  ForScenes(31'000'000, /*shrink=*/true, [&longer](Scene& scene) {
    const auto mode = scene.random.Chance(0.3) ? kv::SearchMode::kExhaustive : kv::SearchMode::kTailFirst;
    const LookupResult result = scene.prompt->Find(Options(mode), scene.drawn.num_tokens);
    const kv::Hit expected = kv::testing::OracleLookup(*scene.config, scene.everywhere, scene.drawn.num_tokens);
    EXPECT_GE(result.hit.length, expected.length);
    const bool exact = mode == kv::SearchMode::kExhaustive || scene.closed || scene.config->units().size() <= 2 ||
                       !HasBrokenChain(scene);
    if (exact) {
      EXPECT_EQ(result.hit, expected);
    }
    if (result.hit.length > expected.length) {
      ++longer;
      EXPECT_TRUE(kv::testing::BruteForceBoundary(*scene.config, scene.everywhere, result.hit.length.value()));
    }
    EXPECT_EQ(scene.prompt->UnheldLoads(result.hit), 0);
    EXPECT_EQ(result.hit.length.value() > 0, !result.leases.empty());
    const FakePool::Call probe[] = {FakePool::Call::kProbe};
    EXPECT_EQ(result.cost.keys_probed, scene.prompt->pool().DistinctKeysAsked(probe));
    EXPECT_EQ(result.cost.probe_calls, scene.prompt->pool().Calls(FakePool::Call::kProbe));
    EXPECT_EQ(result.cost.lease_calls, scene.prompt->pool().Calls(FakePool::Call::kLease));
    const bool may_lease_more = scene.is_dear && (HasBrokenChain(scene) || scene.config->groups().size() > 1);
    if (result.outcome == LookupOutcome::kHit && !scene.closed && !may_lease_more) {
      EXPECT_EQ(scene.prompt->LeasedPairs(), kv::LoadSet(*scene.config, result.hit));
    }
    return result.hit;
  });
  std::cout << longer << " hits longer than the coordinator's\n";
}

// Between any two calls objects that nobody holds may go: whatever comes back is leased.
TEST(LookupProperty, NeverReturnsAHitWithAnUnleasedKeyWhileOthersEvict) {
  int64_t shortened = 0;
  int64_t lost = 0;
  int64_t fallbacks = 0;
  ForScenes(32'000'000, /*shrink=*/false, [&](Scene& scene) {
    FakePool& pool = scene.prompt->pool();
    const std::vector<store::ObjectKey> keys = pool.Keys();
    const double chance = scene.random.Fraction();
    pool.set_before_call([&](FakePool::Call, std::span<const store::ObjectKey> asked) {
      // Mostly keys that this very call asks for, so that losses hurt.
      while (!keys.empty() && scene.random.Chance(chance)) {
        const auto from = !asked.empty() && scene.random.Chance(0.7) ? asked : std::span<const store::ObjectKey>(keys);
        pool.Evict(from[scene.random.Below(from.size())]);
      }
      return absl::OkStatus();
    });
    const auto mode = scene.random.Chance(0.3) ? kv::SearchMode::kExhaustive : kv::SearchMode::kTailFirst;
    const LookupResult result = scene.prompt->Find(Options(mode), scene.drawn.num_tokens);
    EXPECT_EQ(scene.prompt->UnheldLoads(result.hit), 0);
    EXPECT_EQ(result.hit.length.value() > 0, !result.leases.empty());
    EXPECT_NE(result.outcome, LookupOutcome::kMissError);
    EXPECT_LE(result.hit.length.value(), std::max<int64_t>(scene.drawn.num_tokens - 1, 0));
    shortened += result.outcome == LookupOutcome::kShorterHit ? 1 : 0;
    lost += result.outcome == LookupOutcome::kMissLost ? 1 : 0;
    fallbacks += scene.prompt->lookup().counters().exhaustive_fallbacks_total;
    return result.hit;
  });
  std::cout << shortened << " shorter hits, " << lost << " misses by lost keys, " << fallbacks << " fallbacks\n";
  EXPECT_GT(shortened, 0);
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace tenure::connector
