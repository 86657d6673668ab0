// The search's promises on random stores that do not change: the same answer as the coordinator's from few keys in few
// rounds.
#include "tenure/kv/hit_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <vector>

#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/kv/candidates.h"
#include "tenure/kv/coordinator_testing.h"
#include "tenure/kv/masks.h"
#include "tenure/kv/random_case_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::kv {
namespace {

using testing::Config;
using testing::Full;
using testing::PresenceSet;
using testing::RandomCase;
using testing::State;
using testing::Window;

bool Has(const PresenceSet& presence, GroupHash key) {
  return presence.groups[static_cast<size_t>(key.group.value())].contains(key.hash.value());
}

struct Found {
  Hit hit;
  int64_t rounds = 0;
  int64_t leases = 0;
  int64_t restarts = 0;
  std::vector<int64_t> keys;  // Asked, by group.
  bool well_formed = true;    // Batches ascend, are distinct and ask nothing twice.
};

// Runs the search against `presence` and plays the lease of its hits, which finds what is missing in the first 8 absent
// keys' batch.
class Driver {
 public:
  Driver(const CacheConfig& config, const PresenceSet& presence, const HitSearch::Query& query)
      : config_(config), presence_(presence), search_(config) {
    found_.keys.resize(config.groups().size());
    search_.Start(query);
  }

  Found Run() {
    do {
      Probe();
      found_.hit = search_.hit();
    } while (found_.hit.length.value() > 0 && !Lease());
    found_.restarts = search_.restarts();
    return found_;
  }

 private:
  void Probe() {
    for (auto wanted = search_.Step(); !wanted.empty(); wanted = search_.Step()) {
      ++found_.rounds;
      std::vector<Presence> answers;
      for (size_t i = 0; i < wanted.size(); ++i) {
        found_.well_formed &= (i == 0 || wanted[i - 1] < wanted[i]) && asked_.insert(wanted[i]).second;
        ++found_.keys[static_cast<size_t>(wanted[i].group.value())];
        answers.push_back(Has(presence_, wanted[i]) ? Presence::kPresent : Presence::kAbsent);
      }
      search_.Learn(answers);
    }
  }

  // Chains ascending, as a lease does: what comes before the first absence is known to be there.
  bool Lease() {
    ++found_.leases;
    bool complete = true;
    std::set<GroupIndex> broken;
    GroupHash before;
    for (const GroupHash& key : LoadSet(config_, found_.hit)) {
      if (broken.contains(key.group)) continue;
      if (!Has(presence_, key)) {
        if (before.group == key.group && before < key) search_.LearnKey(before, Presence::kPresent);
        search_.LearnKey(key, Presence::kAbsent);
        broken.insert(key.group);
        complete = false;
      } else {
        before = key;
      }
    }
    return complete;
  }

  const CacheConfig& config_;
  const PresenceSet& presence_;
  HitSearch search_;
  std::set<GroupHash> asked_;
  Found found_;
};

HitSearch::Query QueryOf(const RandomCase& one, ChainTrust trust, RoundCost round_cost) {
  return {SearchMode::kTailFirst, trust, one.presence.num_hashes, Tokens(one.num_tokens), round_cost};
}

int64_t CeilLog(int64_t base, int64_t value) {
  int64_t log = 0;
  for (int64_t power = 1; power < value; power *= base) ++log;
  return log;
}

// A full-attention chain of some group has a chunk after a missing one.
bool HasBrokenChain(const CacheConfig& config, const PresenceSet& presence) {
  for (size_t g = 0; g < config.groups().size(); ++g) {
    if (config.groups()[g].kind != GroupKind::kFull) continue;
    const int64_t per_chunk = config.HashesPerChunk(GroupIndex(static_cast<int32_t>(g)));
    bool missing = false;
    for (int64_t hash = per_chunk - 1; hash < presence.num_hashes; hash += per_chunk) {
      if (missing && presence.groups[g].contains(hash)) return true;
      missing |= !presence.groups[g].contains(hash);
    }
  }
  return false;
}

// The formulas of hit_search.h.
class Bounds {
 public:
  Bounds(const CacheConfig& config, const RandomCase& one, const Found& found, RoundCost round_cost)
      : config_(config), dear_(round_cost == RoundCost::kDear), hit_(found.hit.length.value()) {
    const int64_t hash_size = config.hash_block_size().value();
    const LookupCandidates candidates(config, one.presence.num_hashes, Tokens(one.num_tokens));
    hash_end_ = candidates.hash_end();
    int64_t chain_end = hash_end_ * hash_size;
    for (const LookupUnit& unit : config.units()) {
      if (unit.spec.kind != GroupKind::kFull) continue;
      ++full_units_;
      int64_t chunks = 0;
      const auto present = [&](int64_t chunk) {
        return std::all_of(unit.groups.begin(), unit.groups.end(), [&](GroupIndex group) {
          return Has(one.presence, {group, HashIndex((chunk + 1) * unit.hashes_per_chunk - 1)});
        });
      };
      // Of a broken chain the search may take any end.
      if (HasBrokenChain(config, one.presence)) chunks = hash_end_ / unit.hashes_per_chunk;
      while (chunks < hash_end_ / unit.hashes_per_chunk && present(chunks)) ++chunks;
      chain_end = std::min(chain_end, (chunks + (config.fine() ? 1 : 0)) * unit.spec.block_size.value());
      longest_ = std::max(longest_, hash_end_ / unit.hashes_per_chunk);
      smallest_ = std::min(smallest_, unit.spec.block_size.value());
    }
    distance_ = std::max<int64_t>(chain_end - hit_, 0);
    for (const LookupUnit& unit : config.units()) smallest_ = std::min(smallest_, StepOf(unit));
  }

  int64_t Keys(size_t group) const {
    const LookupUnit& unit = config_.UnitOf(GroupIndex(static_cast<int32_t>(group)));
    const int64_t block = unit.spec.block_size.value();
    const int64_t d = CeilDiv(distance_, StepOf(unit));
    const int64_t alignment = config_.hit_alignment().value();
    const ChunkRange load = LoadRange(config_, GroupIndex(static_cast<int32_t>(group)), Tokens(hit_));
    switch (unit.spec.kind) {
      case GroupKind::kFull:
        return ChainKeys(hash_end_ / unit.hashes_per_chunk) + (unit.spec.eagle ? CeilDiv(alignment, block) : 0) +
               (config_.fine() ? 3 * unit.hashes_per_chunk : 0);
      case GroupKind::kState:
        return 2 * d + 64;
      default: {
        const int64_t run = CeilDiv(std::max(unit.spec.window, unit.spec.chunk).value(), block) + 1;
        const int64_t unshared = std::min(run, std::max<int64_t>(alignment / block, 1));
        return load.end - load.first + 64 * (dear_ ? unshared : 1) + 2 * d * unshared;
      }
    }
  }

  int64_t Chunks(size_t group) const {
    const LookupUnit& unit = config_.UnitOf(GroupIndex(static_cast<int32_t>(group)));
    return unit.spec.kind == GroupKind::kFull ? hash_end_ / unit.hashes_per_chunk : 0;
  }

  int64_t Rounds() const {
    return (dear_ ? 2 : CeilLog(33, std::max<int64_t>(longest_, 1))) + CeilLog(2, CeilDiv(distance_, smallest_) + 1) +
           3 + (config_.fine() ? full_units_ : 0);
  }

 private:
  int64_t ChainKeys(int64_t chunks) const {
    if (!dear_) return 33 * CeilLog(33, chunks) + 2;
    int64_t sections = 32;
    while (sections * sections < chunks) ++sections;
    return 2 * sections + 4;
  }
  int64_t StepOf(const LookupUnit& unit) const {
    return config_.fine() ? config_.hash_block_size().value() : unit.spec.block_size.value();
  }

  const CacheConfig& config_;
  const bool dear_;
  int64_t hit_;
  int64_t hash_end_ = 0;
  int64_t longest_ = 0;
  int64_t full_units_ = 0;
  int64_t distance_ = 0;
  int64_t smallest_ = INT64_MAX;
};

void CheckBounds(const CacheConfig& config, const RandomCase& one, const Found& found, RoundCost round_cost) {
  const Bounds bounds(config, one, found, round_cost);
  const int64_t searches = 1 + found.restarts;
  for (size_t group = 0; group < found.keys.size(); ++group) {
    EXPECT_LE(found.keys[group], searches * bounds.Keys(group) + (found.restarts > 0 ? bounds.Chunks(group) : 0))
        << "group " << group << " restarts " << found.restarts << " hit " << found.hit.length.value();
  }
  EXPECT_LE(found.rounds, searches * bounds.Rounds())
      << " restarts " << found.restarts << " hit " << found.hit.length.value();
}

std::set<int64_t> Range(int64_t end) {
  std::set<int64_t> range;
  for (int64_t i = 0; i < end; ++i) range.insert(range.end(), i);
  return range;
}

// A prompt of `chunks` blocks of 16 tokens, and one token more.
Found FindIn(const CacheConfig& config, int64_t chunks, std::vector<std::set<int64_t>> groups,
             ChainTrust trust = ChainTrust::kClosed, RoundCost round_cost = RoundCost::kCheap) {
  const PresenceSet presence = {chunks, std::move(groups)};
  const HitSearch::Query query = {SearchMode::kTailFirst, trust, chunks, Tokens(chunks * 16 + 1), round_cost};
  return Driver(config, presence, query).Run();
}

TEST(TailFirstSearch, TakesOneKeyAGroupWhenThePromptIsThere) {
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16), Window(16, 64)});
  const Found found = FindIn(config, 62'500, {Range(62'500), {62'499}, {62'496, 62'497, 62'498, 62'499}});
  EXPECT_EQ(found.hit.length, Tokens(1'000'000));
  EXPECT_EQ(found.rounds, 1);
  EXPECT_EQ(found.keys, (std::vector<int64_t>{1, 1, 4}));
}

TEST(TailFirstSearch, TakesTwoKeysMoreWhenTheLastBlockMustBeComputed) {
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  const PresenceSet presence = {4, {Range(4), Range(4)}};
  const Found found = Driver(config, presence, {SearchMode::kTailFirst, ChainTrust::kClosed, 4, Tokens(64)}).Run();
  EXPECT_EQ(found.hit.length, Tokens(48));
  EXPECT_EQ(found.rounds, 1);
  EXPECT_EQ(found.keys, (std::vector<int64_t>{1, 2}));
}

// A prototype took 78 keys at 6,250 chunks and 107 at 62,500.
TEST(TailFirstSearch, FindsAMissingTailOfALongChainInFewKeys) {
  const CacheConfig config = Config(16, 16, false, {Full(16)});
  EXPECT_LE(FindIn(config, 6'250, {Range(5'000)}).keys[0], 78);
  EXPECT_LE(FindIn(config, 62'500, {Range(31'111)}).keys[0], 107);
  EXPECT_LE(FindIn(config, 62'500, {{}}).keys[0], 107);
}

TEST(TailFirstSearch, DecidesALongChainInTwoRoundsWhereRoundsAreDear) {
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  for (const int64_t chunks : {1, 2, 33, 512, 2'048, 62'500, 65'536}) {
    for (const int64_t present : {int64_t{0}, chunks / 2, chunks - 1, chunks}) {
      const std::set<int64_t> state = present > 0 ? std::set<int64_t>{present - 1} : std::set<int64_t>{};
      const Found found = FindIn(config, chunks, {Range(present), state}, ChainTrust::kClosed, RoundCost::kDear);
      EXPECT_EQ(found.hit.length, Tokens(present * 16));
      EXPECT_LE(found.rounds, present == chunks ? 1 : 3) << present << " of " << chunks;
      EXPECT_LE(found.keys[0], 2 * 256 + 4) << present << " of " << chunks;
    }
  }
}

TEST(TailFirstSearch, DoublesItsBatchesDownToAStateFarBelow) {
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16), State(16)});
  const Found found = FindIn(config, 62'500, {Range(62'500), {99}, {99}});
  EXPECT_EQ(found.hit.length, Tokens(1600));
  EXPECT_LE(found.keys[1], 62'500);
  EXPECT_LE(found.rounds, 17 + 3);
}

TEST(TailFirstSearch, AsksAWindowOnlyAtBoundariesThatAreNotRefuted) {
  // Runs of 32 chunks at boundaries 8 chunks apart: the absent chunk 1,500 refutes four of them.
  const CacheConfig config = Config(16, 128, false, {Full(16), Window(16, 16 * 32)});
  std::set<int64_t> window = Range(1'500);
  const Found found = FindIn(config, 1'600, {Range(1'600), window});
  EXPECT_EQ(found.hit.length, Tokens(1'496 * 16));
  EXPECT_LE(found.keys[1], 32 + 64 + 2 * 104);
}

// The whole prompt seems to be there, so the hit must leave a token, and inside the last chunk there is nothing
// shorter. In truth the second chain ends after one token, which makes it a hit of one.
TEST(TailFirstSearch, AsksForTheWholeChainWhenAnAssumedOneMadeTheHitFall) {
  const CacheConfig config = Config(1, 3, true, {Full(3), Full(1)});
  const PresenceSet presence = {3, {{2}, {0, 2}}};
  const Found found = Driver(config, presence, {SearchMode::kTailFirst, ChainTrust::kIndependent, 3, Tokens(3)}).Run();
  EXPECT_EQ(found.hit, testing::OracleLookup(config, presence, 3));
  EXPECT_EQ(found.hit.length, Tokens(1));
}

// Nor does a lease touch the chunk between an eagle hit and the end it was dropped from.
TEST(TailFirstSearch, ProbesTheProofOfAnEagleChainBeforeItAcceptsAHit) {
  const CacheConfig config = Config(16, 16, false, {Full(16, true), State(16)});
  std::set<int64_t> chain = Range(20);
  chain.erase(10);
  const Found found = FindIn(config, 20, {chain, {9, 4}}, ChainTrust::kIndependent);
  EXPECT_EQ(found.hit.length, Tokens(5 * 16));
}

// The short run at block 0, trimmed before and after the dropped chunk: sound at 6 tokens, but a chain of four chunks
// leads vLLM to a miss.
TEST(TailFirstSearch, KeepsTheDropQuirkWhereTheTrueChainLeadsToIt) {
  const CacheConfig config = Config(1, 6, false, {Window(3, 14, true), Full(2, true)});
  const PresenceSet presence = {35, {{2, 5, 8, 11, 14, 20, 23, 26, 29, 32}, {1, 3, 5, 7, 9, 13, 15, 33}}};
  const Found found =
      Driver(config, presence, {SearchMode::kTailFirst, ChainTrust::kIndependent, 35, Tokens(35)}).Run();
  EXPECT_EQ(found.hit, testing::OracleLookup(config, presence, 35));
}

template <typename Check>
void ForRandomCases(uint64_t seed, Check check) {
  testing::CaseCounts counts;
  for (int64_t i = 0; i < RandomCases(100'000); ++i) {
    Random random(seed + static_cast<uint64_t>(i));
    RandomCase one = testing::MakeRandomCase(random);
    const CacheConfig config = testing::MustCreate(one.options);
    const Hit hit = check(one, config);
    const Tokens longest = RoundDown(Tokens(one.num_tokens), config.hit_alignment());
    counts.Count(config, one.presence, hit.length.value(), longest.value());
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed + static_cast<uint64_t>(i) << " " << testing::Describe(one);
    }
  }
  std::cout << counts.ToString() << "\n";
  EXPECT_TRUE(counts.Enough()) << counts.ToString();
}

TEST(HitSearchProperty, ExhaustiveAsksForEveryCandidateOnceAndIsTheCoordinator) {
  ForRandomCases(21'000'000, [](const RandomCase& one, const CacheConfig& config) {
    HitSearch search(config);
    search.Start({SearchMode::kExhaustive, ChainTrust::kIndependent, one.presence.num_hashes, Tokens(one.num_tokens)});
    const auto wanted = search.Step();
    EXPECT_EQ(std::vector(wanted.begin(), wanted.end()),
              testing::OracleCandidates(config, one.presence.num_hashes, one.num_tokens));
    std::vector<Presence> answers;
    for (const GroupHash& key : wanted)
      answers.push_back(Has(one.presence, key) ? Presence::kPresent : Presence::kAbsent);
    search.Learn(answers);
    EXPECT_TRUE(search.Step().empty());
    EXPECT_EQ(search.hit(), testing::OracleLookup(config, one.presence, one.num_tokens));
    return search.hit();
  });
}

TEST(HitSearchProperty, TailFirstEqualsExhaustiveOnAClosedPool) {
  ForRandomCases(22'000'000, [](RandomCase one, const CacheConfig& config) {
    // Holes of other kinds than full attention stay; a chain's are cut off.
    const PresenceSet drawn = one.presence;
    one.presence = testing::ClosedPart(config, one.presence);
    const Hit expected = testing::OracleLookup(config, one.presence, one.num_tokens);
    for (const RoundCost cost : {RoundCost::kCheap, RoundCost::kDear}) {
      const Found found = Driver(config, one.presence, QueryOf(one, ChainTrust::kClosed, cost)).Run();
      EXPECT_TRUE(found.well_formed);
      EXPECT_EQ(found.restarts, 0);
      EXPECT_LE(found.leases, 1);
      EXPECT_EQ(found.hit, expected);
      CheckBounds(config, one, found, cost);
    }
    one.presence = drawn;
    return expected;
  });
}

TEST(HitSearchProperty, TailFirstIsNeverShorterOnAnIndependentPool) {
  int64_t longer = 0;
  int64_t leases_max = 0;
  int64_t restarted = 0;
  ForRandomCases(23'000'000, [&longer, &leases_max, &restarted](const RandomCase& one, const CacheConfig& config) {
    const Hit expected = testing::OracleLookup(config, one.presence, one.num_tokens);
    for (const RoundCost cost : {RoundCost::kCheap, RoundCost::kDear}) {
      const Found found = Driver(config, one.presence, QueryOf(one, ChainTrust::kIndependent, cost)).Run();
      EXPECT_TRUE(found.well_formed);
      EXPECT_GE(found.hit.length, expected.length);
      EXPECT_TRUE(testing::MissingLoads(config, one.presence, found.hit).empty());
      if (config.units().size() <= 2 || !HasBrokenChain(config, one.presence)) {
        EXPECT_EQ(found.hit, expected);
      }
      if (found.hit.length > expected.length) {
        ++longer;
        EXPECT_TRUE(testing::BruteForceBoundary(config, one.presence, found.hit.length.value()));
      }
      CheckBounds(config, one, found, cost);
      leases_max = std::max(leases_max, found.leases);
      restarted += found.restarts > 0 ? 1 : 0;
    }
    return expected;
  });
  std::cout << longer << " hits longer than the coordinator's, at most " << leases_max << " leases, " << restarted
            << " searches restarted\n";
}

}  // namespace
}  // namespace tenure::kv
