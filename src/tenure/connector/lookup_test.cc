// Lookups with a lease: the vectors of the store_connector spec §14.11 and every outcome.
#include "tenure/connector/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tenure/base/status.h"
#include "tenure/connector/prompt_pool_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::connector {
namespace {

using kv::testing::Config;
using kv::testing::Full;
using kv::testing::PresenceSet;
using kv::testing::State;
using kv::testing::Window;
using store::FakePool;
using testing::PromptPool;
using Call = FakePool::Call;
using Pairs = std::vector<std::pair<int, int64_t>>;

constexpr LookupOptions kExhaustive = {kv::SearchMode::kExhaustive, LeaseMode::kSelective, absl::Seconds(10)};
constexpr LookupOptions kTailFirst = {kv::SearchMode::kTailFirst, LeaseMode::kSelective, absl::Seconds(10)};

std::set<int64_t> Range(int64_t end) {
  std::set<int64_t> range;
  for (int64_t i = 0; i < end; ++i) range.insert(i);
  return range;
}

Pairs PairsOf(const std::vector<kv::GroupHash>& pairs) {
  Pairs result;
  for (const kv::GroupHash& pair : pairs) result.emplace_back(pair.group.value(), pair.hash.value());
  return result;
}

Pairs Leased(int group, const std::vector<int64_t>& hashes) {
  Pairs pairs;
  for (const int64_t hash : hashes) pairs.emplace_back(group, hash);
  return pairs;
}

Pairs operator+(Pairs a, const Pairs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Before the n-th lease (from 0), evicts `pairs[n]`.
void EvictBeforeLeases(PromptPool& prompt, const Pairs& pairs) {
  prompt.pool().set_before_call([&prompt, pairs, next = size_t{0}](Call call, auto) mutable {
    if (call == Call::kLease && next < pairs.size()) {
      const auto& [group, hash] = pairs[next++];
      prompt.pool().Evict(prompt.Key({kv::GroupIndex(group), kv::HashIndex(hash)}, 0));
    }
    return absl::OkStatus();
  });
}

class FullAndState : public ::testing::TestWithParam<kv::SearchMode> {
 protected:
  FullAndState() { prompt_.Insert({6, {Range(6), Range(6)}}); }
  LookupResult Find(int64_t num_tokens) {
    LookupOptions options;
    options.mode = GetParam();
    return prompt_.Find(options, num_tokens);
  }

  kv::CacheConfig config_ = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt_{config_, 6, {1, 1}, /*closed=*/false};
};

INSTANTIATE_TEST_SUITE_P(Modes, FullAndState,
                         ::testing::Values(kv::SearchMode::kExhaustive, kv::SearchMode::kTailFirst));

TEST_P(FullAndState, LeasesOnlyWhatTheLoadReads) {
  const LookupResult result = Find(100);
  EXPECT_EQ(result.outcome, LookupOutcome::kHit);
  EXPECT_EQ(result.hit.length, Tokens(96));
  EXPECT_EQ(PairsOf(prompt_.LeasedPairs()), Leased(0, {0, 1, 2, 3, 4, 5}) + Leased(1, {5}));
  EXPECT_EQ(result.cost.keys_leased, 7);
  if (GetParam() == kv::SearchMode::kExhaustive) {
    EXPECT_EQ(result.cost.keys_probed, 12);
    EXPECT_EQ(result.cost.lease_calls, 1);
  } else {
    EXPECT_EQ(result.cost.keys_probed, 2);
  }
}

TEST_P(FullAndState, LeavesOneTokenToCompute) {
  const LookupResult result = Find(96);
  EXPECT_EQ(result.hit.length, Tokens(80));
  EXPECT_EQ(PairsOf(prompt_.LeasedPairs()), Leased(0, {0, 1, 2, 3, 4}) + Leased(1, {4}));
}

TEST_P(FullAndState, LeasesAShorterHitWhenAChunkIsLost) {
  EvictBeforeLeases(prompt_, {{0, 3}});
  const LookupResult result = Find(100);
  EXPECT_EQ(result.outcome, LookupOutcome::kShorterHit);
  EXPECT_EQ(result.hit.length, Tokens(48));
  EXPECT_EQ(result.cost.keys_leased, 4);
  EXPECT_EQ(prompt_.UnheldLoads(result.hit), 0);
}

TEST_P(FullAndState, LeasesAShorterHitWhenAStateIsLost) {
  EvictBeforeLeases(prompt_, {{1, 5}});
  const LookupResult result = Find(100);
  EXPECT_EQ(result.hit.length, Tokens(80));
  EXPECT_EQ(result.cost.keys_leased, 6);
}

TEST_P(FullAndState, IsAMissWhenTheFirstChunkIsLost) {
  EvictBeforeLeases(prompt_, {{0, 0}});
  const LookupResult result = Find(100);
  EXPECT_EQ(result.outcome, LookupOutcome::kMissLost);
  EXPECT_EQ(result.cost.lease_rounds, 1);
  EXPECT_TRUE(result.leases.empty());
  EXPECT_TRUE(prompt_.LeasedPairs().empty());
}

TEST_P(FullAndState, ReleasesWhatItHeldWhenTheResultGoes) {
  { const LookupResult result = Find(100); }
  EXPECT_TRUE(prompt_.LeasedPairs().empty());
}

TEST_P(FullAndState, AFailingProbeIsAMiss) {
  prompt_.pool().set_before_call(
      [](Call call, auto) { return call == Call::kProbe ? Unavailable("the pool is away") : absl::OkStatus(); });
  EXPECT_EQ(Find(100).outcome, LookupOutcome::kMissError);
  EXPECT_EQ(prompt_.lookup().counters().error_misses_total, 1);
}

TEST_P(FullAndState, AFailingLeaseIsAMissAndHoldsNothing) {
  prompt_.pool().set_before_call(
      [](Call call, auto) { return call == Call::kLease ? Unavailable("the pool is away") : absl::OkStatus(); });
  const LookupResult result = Find(100);
  EXPECT_EQ(result.outcome, LookupOutcome::kMissError);
  EXPECT_EQ(result.hit, kv::Hit());
  EXPECT_TRUE(prompt_.LeasedPairs().empty());
}

TEST_P(FullAndState, AThrowingPoolIsAMiss) {
  prompt_.pool().set_before_call([](Call, auto) -> absl::Status { throw std::runtime_error("lost connection"); });
  EXPECT_EQ(Find(100).outcome, LookupOutcome::kMissError);
}

TEST_P(FullAndState, AKeyWithoutAnAnswerIsAMiss) {
  const store::ObjectKey state = prompt_.Key({kv::GroupIndex(1), kv::HashIndex(5)}, 0);
  prompt_.pool().set_unavailable([state](const store::ObjectKey& key) { return key == state; });
  EXPECT_EQ(Find(100).outcome, LookupOutcome::kMissError);
  prompt_.pool().set_unavailable({});
  EXPECT_EQ(Find(100).outcome, LookupOutcome::kHit) << "the next lookup is not affected";
}

TEST_P(FullAndState, AsksNothingForAPromptShorterThanABlock) {
  EXPECT_EQ(Find(15).outcome, LookupOutcome::kMiss);
  EXPECT_TRUE(prompt_.pool().records().empty());
}

TEST_P(FullAndState, CountsLookupsByOutcome) {
  Find(100);
  Find(15);
  EvictBeforeLeases(prompt_, {{0, 0}});
  Find(100);
  const LookupCounters& counters = prompt_.lookup().counters();
  EXPECT_EQ(counters.lookups_total, 3);
  EXPECT_EQ(counters.hits_total, 1);
  EXPECT_EQ(counters.misses_total, 2);
  EXPECT_EQ(counters.lost_misses_total, 1);
  EXPECT_EQ(counters.hit_tokens_total, 96);
}

TEST(ExhaustiveLookup, IsAMissWhenKeysAreLostInBothRounds) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 6, {1, 1}, /*closed=*/false);
  prompt.Insert({6, {Range(6), Range(6)}});
  EvictBeforeLeases(prompt, {{0, 3}, {1, 2}});
  const LookupResult result = prompt.Find(kExhaustive, 100);
  EXPECT_EQ(result.outcome, LookupOutcome::kMissLost);
  EXPECT_EQ(result.cost.lease_rounds, 2);
}

TEST(TailFirstLookup, SurvivesMoreLossesThanExhaustive) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 6, {1, 1}, /*closed=*/false);
  prompt.Insert({6, {Range(6), Range(6)}});
  EvictBeforeLeases(prompt, {{1, 5}, {1, 4}, {1, 3}, {1, 2}, {1, 1}});
  const LookupResult result = prompt.Find(kTailFirst, 100);
  EXPECT_EQ(result.hit.length, Tokens(16));
  EXPECT_EQ(result.cost.lease_rounds, 6);
}

TEST(TailFirstLookup, FallsBackToOneExhaustiveLookupAfterSixRounds) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 20, {1, 1}, /*closed=*/false);
  prompt.Insert({20, {Range(20), Range(20)}});
  EvictBeforeLeases(prompt, {{1, 19}, {1, 18}, {1, 17}, {1, 16}, {1, 15}, {1, 14}});
  const LookupResult result = prompt.Find(kTailFirst, 330);
  EXPECT_EQ(result.outcome, LookupOutcome::kShorterHit);
  EXPECT_EQ(result.hit.length, Tokens(14 * 16));
  EXPECT_EQ(prompt.lookup().counters().exhaustive_fallbacks_total, 1);
  EXPECT_EQ(prompt.UnheldLoads(result.hit), 0);
}

TEST(ExhaustiveLookup, AsksAndLeasesEveryRank) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 6, {2, 2}, /*closed=*/false);
  prompt.Insert({6, {Range(6), Range(6)}});
  const LookupResult result = prompt.Find(kExhaustive, 100);
  EXPECT_EQ(result.cost.keys_probed, 24);
  EXPECT_EQ(result.cost.keys_leased, 14);
}

TEST(Lookup, CountsAChunkThatOneRankLacksAsAbsent) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  for (const LookupOptions& options : {kExhaustive, kTailFirst}) {
    PromptPool prompt(config, 6, {2, 2}, /*closed=*/false);
    prompt.InsertRank({6, {Range(6), Range(6)}}, 0);
    prompt.InsertRank({6, {Range(4), Range(6)}}, 1);
    EXPECT_EQ(prompt.Find(options, 100).hit.length, Tokens(64));
  }
}

TEST(ExhaustiveLookup, KeysTailsInsideAChunkAndFallsBackInside) {
  const kv::CacheConfig config = Config(4, 16, true, {Full(16), State(16)});
  const PresenceSet present = {12, {{3, 7, 11}, {3, 8}}};
  PromptPool prompt(config, 12, {1, 1}, /*closed=*/false);
  prompt.Insert(present);
  const LookupResult hit = prompt.Find(kExhaustive, 50);
  EXPECT_EQ(hit.cost.keys_probed, 24);
  EXPECT_EQ(hit.hit.length, Tokens(36));
  EXPECT_EQ(hit.hit.tails, (std::vector<Tokens>{Tokens(48), Tokens(36)}));
  EXPECT_EQ(PairsOf(prompt.LeasedPairs()), Leased(0, {3, 7, 11}) + Leased(1, {8}));

  PromptPool losing(config, 12, {1, 1}, /*closed=*/false);
  losing.Insert(present);
  EvictBeforeLeases(losing, {{0, 11}});
  EXPECT_EQ(losing.Find(kExhaustive, 50).hit.length, Tokens(16));
}

TEST(ExhaustiveLookup, LeasesTheLastWindowOnly) {
  const kv::CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 16)});
  const PresenceSet present = {12, {{3, 7, 11}, {2, 3, 6, 7, 10, 11}}};
  PromptPool prompt(config, 12, {1, 1}, /*closed=*/false);
  prompt.Insert(present);
  const LookupResult hit = prompt.Find(kExhaustive, 100);
  EXPECT_EQ(hit.cost.keys_probed, 9);
  EXPECT_EQ(hit.hit.length, Tokens(96));
  EXPECT_EQ(PairsOf(prompt.LeasedPairs()), Leased(0, {3, 7, 11}) + Leased(1, {10, 11}));

  PromptPool losing(config, 12, {1, 1}, /*closed=*/false);
  losing.Insert(present);
  EvictBeforeLeases(losing, {{1, 10}});
  const LookupResult shorter = losing.Find(kExhaustive, 100);
  EXPECT_EQ(shorter.hit.length, Tokens(64));
  EXPECT_EQ(shorter.cost.keys_leased, 4);
}

TEST(Lookup, NeverLeasesAnEagleProof) {
  const kv::CacheConfig config = Config(8, 32, false, {Full(32), Window(8, 8)}, /*use_eagle=*/true);
  for (const LookupOptions& options : {kExhaustive, kTailFirst}) {
    PromptPool prompt(config, 12, {1, 1}, /*closed=*/false);
    prompt.Insert({12, {{3, 7, 11}, {3, 4, 7, 8, 11}}});
    const LookupResult result = prompt.Find(options, 100);
    EXPECT_EQ(result.hit.length, Tokens(64));
    EXPECT_EQ(PairsOf(prompt.LeasedPairs()), Leased(0, {3, 7}) + Leased(1, {7}));
  }
}

// The checked set of a draft model that keeps three more tokens: window 16 over blocks of 16 with the chunk before.
TEST(Lookup, LowersTheHitWhenAChunkOfTheRetainedHistoryIsGone) {
  const kv::CacheConfig config = Config(16, 16, false, {Window(16, 35)});
  PromptPool prompt(config, 4, {1}, /*closed=*/false);
  prompt.Insert({4, {{1, 2, 3}}});
  EXPECT_EQ(prompt.Find(kTailFirst, 65).hit.length, Tokens(64));
  PromptPool lacking(config, 4, {1}, /*closed=*/false);
  lacking.Insert({4, {{0, 2, 3}}});
  EXPECT_EQ(lacking.Find(kTailFirst, 65).hit.length, Tokens(16));
}

TEST(ClosedPoolLookup, LeasesOneKeyForAWholeChain) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 600, {2, 2}, /*closed=*/true);
  prompt.Insert({600, {Range(600), {599}}});
  const LookupResult result = prompt.Find(kTailFirst, 9601);
  EXPECT_EQ(result.hit.length, Tokens(9600));
  EXPECT_EQ(result.cost.keys_probed, 4);
  EXPECT_EQ(result.cost.keys_leased, 4);
  EXPECT_EQ(prompt.UnheldLoads(result.hit), 0);
  EXPECT_FALSE(prompt.pool().Evict(prompt.Key({kv::GroupIndex(0), kv::HashIndex(0)}, 1)));
}

// Keys asked in each lease call, in order.
std::vector<size_t> LeaseCallSizes(PromptPool& prompt) {
  std::vector<size_t> sizes;
  for (const FakePool::Record& record : prompt.pool().records()) {
    if (record.call == Call::kLease) sizes.push_back(record.keys.size());
  }
  return sizes;
}

TEST(IndependentPoolLookup, LeasesAChainInCallsThatGrowWithWhatStands) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 25'000, {1}, /*closed=*/false);
  prompt.Insert({25'000, {Range(25'000)}});
  const LookupResult result = prompt.Find(kTailFirst, 400'001);
  EXPECT_EQ(result.hit.length, Tokens(400'000));
  EXPECT_THAT(LeaseCallSizes(prompt), ::testing::ElementsAre(2048, 2048, 4096, 8192, 8192, 424));
}

TEST(IndependentPoolLookup, LeasesTheChainOf32kTokensInOneCall) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 2048, {1}, /*closed=*/false);
  prompt.Insert({2048, {Range(2048)}});
  const LookupResult result = prompt.Find(kTailFirst, 32'769);
  EXPECT_EQ(result.cost.probe_calls, 1);
  EXPECT_EQ(result.cost.lease_calls, 1);
}

TEST(IndependentPoolLookup, FindsAPartOfAChainInTwoProbesWhereThePoolSaysThatRoundsAreDear) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  for (const bool dear : {false, true}) {
    PromptPool prompt(config, 2048, {1}, /*closed=*/false);
    prompt.Insert({2048, {Range(1000)}});
    if (dear) prompt.pool().MakeRoundsDear();
    const LookupResult result = prompt.Find(kTailFirst, 32'769);
    EXPECT_EQ(result.hit.length, Tokens(16'000));
    EXPECT_EQ(result.cost.probe_calls, dear ? 2 : 4);
    EXPECT_LE(result.cost.keys_probed, dear ? 2 * 46 + 4 : 33 * 3 + 2);
  }
}

TEST(IndependentPoolLookup, LeasesAShortChainWithoutAProbeWhereRoundsAreDear) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  for (const int64_t there : {512, 511, 256, 1, 0}) {
    PromptPool prompt(config, 512, {1}, /*closed=*/false);
    prompt.pool().MakeRoundsDear();
    prompt.Insert({512, {Range(there)}});
    const LookupResult result = prompt.Find(kTailFirst, 8'193);
    EXPECT_EQ(result.outcome, there > 0 ? LookupOutcome::kHit : LookupOutcome::kMiss);
    EXPECT_EQ(result.hit.length, Tokens(there * 16));
    EXPECT_EQ(result.cost.probe_calls, 0);
    EXPECT_THAT(LeaseCallSizes(prompt), ::testing::ElementsAre(512));
    EXPECT_EQ(prompt.LeasedPairs(), kv::LoadSet(config, result.hit)) << "a part of a chain is leased to its end";
    EXPECT_EQ(result.cost.keys_leased, there > 0 ? there : 512);
  }
}

TEST(IndependentPoolLookup, LeasesBehindAHoleAtMostWhatIsLeasedAhead) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 256, {2}, /*closed=*/false);
  prompt.pool().MakeRoundsDear();
  prompt.InsertRank({256, {Range(256)}}, 0);
  std::set<int64_t> present = Range(256);
  present.erase(200);
  prompt.InsertRank({256, {present}}, 1);
  const LookupResult result = prompt.Find(kTailFirst, 4'097);
  EXPECT_EQ(result.hit.length, Tokens(200 * 16));
  EXPECT_EQ(result.outcome, LookupOutcome::kHit) << "nothing was lost: the hole was there before";
  EXPECT_THAT(LeaseCallSizes(prompt), ::testing::ElementsAre(512));
  EXPECT_EQ(prompt.UnheldLoads(result.hit), 0);
  EXPECT_EQ(PairsOf(prompt.LeasedPairs()).size(), 255u);
}

TEST(IndependentPoolLookup, ProbesFirstWhereTheLongestHitMayNotBeTheLoadSet) {
  const struct {
    kv::CacheConfig config;
    int64_t num_hashes;
    int64_t num_tokens;
  } cases[] = {
      {Config(16, 16, false, {Full(16)}), 513, 8'209},          // One key too many.
      {Config(16, 16, false, {Full(16)}), 32, 512},             // The last chunk would leave nothing to compute.
      {Config(16, 16, false, {Full(16), State(16)}), 32, 513},  // Without the state the chain would be leased in vain.
      {Config(16, 32, false, {Full(16), Full(32)}), 32, 513},
      {Config(4, 16, true, {Full(16)}), 32, 129},
      {Config(16, 16, false, {Full(16)}, /*use_eagle=*/true), 32, 513},
  };
  for (const auto& [config, num_hashes, num_tokens] : cases) {
    PromptPool prompt(config, num_hashes, std::vector<int>(config.groups().size(), 1), /*closed=*/false);
    prompt.pool().MakeRoundsDear();
    EXPECT_EQ(prompt.Find(kTailFirst, num_tokens).outcome, LookupOutcome::kMiss);
    EXPECT_TRUE(LeaseCallSizes(prompt).empty()) << num_tokens;
  }
}

TEST(IndependentPoolLookup, FailingLeaseAheadIsAMiss) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 32, {1}, /*closed=*/false);
  prompt.pool().MakeRoundsDear();
  prompt.Insert({32, {Range(32)}});
  prompt.pool().set_before_call([](Call, auto) { return Unavailable("the pool is away"); });
  EXPECT_EQ(prompt.Find(kTailFirst, 513).outcome, LookupOutcome::kMissError);
  prompt.pool().set_before_call(nullptr);
  EXPECT_EQ(prompt.Find(kTailFirst, 513).outcome, LookupOutcome::kHit);
}

TEST(IndependentPoolLookup, LeasesNoMoreOfAChainAfterItsFirstAbsence) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 20'000, {1}, /*closed=*/false);
  std::set<int64_t> present = Range(20'000);
  present.erase(5000);
  prompt.Insert({20'000, {present}});
  const LookupResult result = prompt.Find(kTailFirst, 320'001);
  EXPECT_EQ(result.hit.length, Tokens(5000 * 16));
  EXPECT_EQ(result.outcome, LookupOutcome::kShorterHit);
  EXPECT_THAT(LeaseCallSizes(prompt), ::testing::ElementsAre(2048, 2048, 4096, 2048, 2048, 904));
  EXPECT_EQ(result.cost.chain_restarts, 1);
  EXPECT_EQ(result.cost.keys_probed, 1) << "the lease tells where the chain ends";
  EXPECT_EQ(prompt.UnheldLoads(result.hit), 0);
}

TEST(LeaseAll, LeasesEveryPresentCandidateWhateverTheHit) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  for (const kv::SearchMode mode : {kv::SearchMode::kExhaustive, kv::SearchMode::kTailFirst}) {
    PromptPool prompt(config, 6, {1, 1}, /*closed=*/false);
    prompt.Insert({6, {{0, 1, 3}, {0, 1, 4}}});
    const LookupResult result = prompt.Find({mode, LeaseMode::kAll, absl::Seconds(10)}, 100);
    EXPECT_EQ(result.hit.length, Tokens(32));
    EXPECT_EQ(result.cost.keys_leased, 6);
    EXPECT_EQ(PairsOf(prompt.LeasedPairs()), Leased(0, {0, 1, 3}) + Leased(1, {0, 1, 4}));
  }
}

TEST(LeaseAll, KeepsItsLeasesAfterAMiss) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 6, {1}, /*closed=*/false);
  prompt.Insert({6, {{2, 3}}});
  const LookupResult result = prompt.Find({kv::SearchMode::kExhaustive, LeaseMode::kAll, absl::Seconds(10)}, 100);
  EXPECT_EQ(result.outcome, LookupOutcome::kMiss);
  EXPECT_EQ(result.cost.keys_probed, 6);
  EXPECT_EQ(PairsOf(prompt.LeasedPairs()), Leased(0, {2, 3}));
}

TEST(LeaseAll, TakesTheShorterHitWhenAKeyIsLostBeforeTheLease) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 6, {1}, /*closed=*/false);
  prompt.Insert({6, {Range(6)}});
  EvictBeforeLeases(prompt, {{0, 4}});
  const LookupResult result = prompt.Find({kv::SearchMode::kTailFirst, LeaseMode::kAll, absl::Seconds(10)}, 100);
  EXPECT_EQ(result.outcome, LookupOutcome::kShorterHit);
  EXPECT_EQ(result.hit.length, Tokens(64));
}

TEST(Lookup, AFailingHashSourceIsAMiss) {
  class Broken final : public HashSource {
   public:
    int64_t size() const override { return 6; }
    absl::Status Read(std::span<const kv::HashIndex>, std::span<kv::BlockHash>) const override {
      return InvalidArgument("hashes[5] has 3 bytes; a block hash has 16 or 32");
    }
  };
  class Endless final : public HashSource {
   public:
    int64_t size() const override { return INT64_MAX; }
    absl::Status Read(std::span<const kv::HashIndex>, std::span<kv::BlockHash>) const override {
      return absl::OkStatus();
    }
  };
  const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  PromptPool prompt(config, 6, {1}, /*closed=*/false);
  prompt.Find(kTailFirst, 100);
  EXPECT_EQ(prompt.lookup().Find(Broken(), Tokens(100)).outcome, LookupOutcome::kMissError);
  EXPECT_EQ(prompt.lookup().Find(Endless(), Tokens(INT64_MAX)).outcome, LookupOutcome::kMissError);
  EXPECT_EQ(prompt.lookup().Find(prompt.hashes(), Tokens(-1)).outcome, LookupOutcome::kMiss);
}

TEST(LookupCreate, RefusesNamespacesAndTtlsThatDoNotFit) {
  const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  PromptPool prompt(config, 1, {1, 1}, /*closed=*/false);
  const auto refuses = [&](GroupNamespaces namespaces, absl::Duration ttl, const char* what) {
    const auto lookup = Lookup::Create(config, prompt.pool(), std::move(namespaces),
                                       {kv::SearchMode::kTailFirst, LeaseMode::kSelective, ttl});
    ASSERT_EQ(lookup.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(Message(lookup.status())), ::testing::HasSubstr(what));
  };
  refuses({prompt.namespaces()[0]}, absl::Seconds(1), "namespaces has 1 groups");
  refuses({prompt.namespaces()[0], {}}, absl::Seconds(1), "namespaces[1]");
  refuses(prompt.namespaces(), absl::ZeroDuration(), "lease_ttl");
  refuses(prompt.namespaces(), absl::Hours(25), "lease_ttl");
}

}  // namespace
}  // namespace tenure::connector
