// The hit rule against the vectors of the store_connector spec §14.5 to §14.7 and, with everything known, against the
// oracle.
#include "tenure/kv/hit_rule.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/kv/candidates.h"
#include "tenure/kv/coordinator_testing.h"
#include "tenure/kv/random_case_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::kv {
namespace {

using testing::Chunked;
using testing::Config;
using testing::Full;
using testing::PresenceSet;
using testing::RandomCase;
using testing::State;
using testing::Window;
using Groups = std::vector<std::set<int64_t>>;

// Knows everything: what is not in the set is absent.
class Everything final : public Knowledge {
 public:
  explicit Everything(const Groups& groups) : groups_(groups) {}
  Presence Get(GroupHash key) const override {
    return groups_[static_cast<size_t>(key.group.value())].contains(key.hash.value()) ? Presence::kPresent
                                                                                      : Presence::kAbsent;
  }

 private:
  const Groups& groups_;
};

// The same, but only what a lookup may ask for is present.
class Asked final : public Knowledge {
 public:
  Asked(const Groups& groups, const LookupCandidates& candidates) : everything_(groups), candidates_(candidates) {}
  Presence Get(GroupHash key) const override { return candidates_.Has(key) ? everything_.Get(key) : Presence::kAbsent; }

 private:
  Everything everything_;
  const LookupCandidates& candidates_;
};

int64_t BoundaryOf(const CacheConfig& config, const Groups& present, int64_t length, bool apply_eagle = true) {
  const BoundaryQuery query{length / config.hash_block_size().value() + 1, Tokens(length), apply_eagle};
  return std::get<Tokens>(FindBoundary(config, query, Everything(present))).value();
}

Hit HitOf(const CacheConfig& config, const Groups& present, int64_t num_hashes, int64_t num_tokens) {
  const LookupCandidates candidates(config, num_hashes, Tokens(num_tokens));
  return std::get<Hit>(FindHit(config, num_hashes, Tokens(num_tokens), Asked(present, candidates)));
}

std::vector<Tokens> Tails(std::vector<int64_t> tokens) { return {tokens.begin(), tokens.end()}; }

TEST(HitRule, KeepsTheShortRunAtBlockZeroAndTheDropQuirk) {
  EXPECT_EQ(BoundaryOf(Config(8, 8, false, {Window(8, 16)}), {{0}}, 64), 8);
  EXPECT_EQ(BoundaryOf(Config(8, 8, false, {Window(8, 16)}), {{5}}, 64), 0);
  const CacheConfig eagle = Config(8, 32, false, {Window(8, 41, true)});
  EXPECT_EQ(BoundaryOf(eagle, {{0, 1, 2, 3, 4}}, 72), 0);
  EXPECT_EQ(BoundaryOf(eagle, {{0, 1, 2, 3, 4}}, 72, /*apply_eagle=*/false), 32);
}

TEST(HitRule, CountsAPaddedMissAsTheEndOfAPrefix) {
  EXPECT_EQ(BoundaryOf(Config(16, 16, false, {Full(16)}), {{0, 2}}, 48), 16);
}

TEST(HitRule, TakesTheLargestBoundaryThatEveryGroupHas) {
  const CacheConfig config = Config(256, 256, false, {Full(256), State(256)});
  EXPECT_EQ(BoundaryOf(config, {{0, 1}, {0, 3}}, 1024), 256);
  EXPECT_EQ(BoundaryOf(config, {{0, 1, 2, 3}, {0, 3}}, 1024), 1024);
}

TEST(HitRule, FollowsHybridVectors) {
  const CacheConfig window = Config(8, 32, false, {Full(32), Window(8, 8)});
  EXPECT_EQ(BoundaryOf(window, {{3, 7, 11}, {3, 7}}, 96), 64);
  EXPECT_EQ(BoundaryOf(window, {{3, 7}, {11}}, 96), 0);
  const CacheConfig window_eagle = Config(8, 32, false, {Full(32), Window(8, 8)}, true);
  EXPECT_EQ(BoundaryOf(window_eagle, {{3, 7, 11}, {7, 8}}, 96), 64);
  EXPECT_EQ(BoundaryOf(window_eagle, {{3, 7, 11}, {7}}, 96), 0);
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)});
  EXPECT_EQ(BoundaryOf(fine, {{3, 7, 10}, {10}}, 48), 44);
  EXPECT_EQ(BoundaryOf(fine, {{3, 7, 9}, {7, 10}}, 48), 32);
  EXPECT_EQ(BoundaryOf(fine, {{3, 7}, {10}}, 48), 0);
  const CacheConfig three = Config(8, 32, false, {Full(32), Window(8, 8), Window(8, 16)});
  EXPECT_EQ(BoundaryOf(three, {{3, 7, 11, 15}, {3, 11}, {2, 3, 6, 7}}, 128), 32);
  EXPECT_EQ(BoundaryOf(Config(4, 4, false, {Chunked(4, 8)}), {{2}}, 15), 12);
}

TEST(HitRule, LeavesOneTokenToCompute) {
  const CacheConfig config = Config(16, 16, false, {Full(16)});
  const Groups all = {{0, 1, 2, 3}};
  EXPECT_EQ(HitOf(config, all, 3, 48).length, Tokens(32));
  EXPECT_EQ(HitOf(config, all, 1, 17).length, Tokens(16));
  EXPECT_EQ(HitOf(config, all, 3, 49).length, Tokens(48));
  EXPECT_EQ(HitOf(config, all, 1, 16).length, Tokens(0));
  EXPECT_EQ(HitOf(config, all, 0, 15).length, Tokens(0));
}

TEST(HitRule, FallsFarBelowWhenAPartialHitMustLeaveOneToken) {
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)});
  const Groups present = {{3, 7, 11}, {9, 11}};
  EXPECT_EQ(HitOf(fine, present, 12, 48).length, Tokens(0));
  EXPECT_EQ(HitOf(fine, present, 12, 50).length, Tokens(48));
}

TEST(HitRule, KeysTheTailAtTheFirstHashThatCoversTheHit) {
  const CacheConfig fine = Config(4, 16, true, {Full(16), State(16)});
  const Hit later = HitOf(fine, {{3, 7, 11}, {8}}, 12, 48);
  EXPECT_EQ(later.length, Tokens(36));
  EXPECT_EQ(later.tails, Tails({48, 36}));
  EXPECT_EQ(HitOf(fine, {{3, 7, 9, 11}, {8}}, 12, 49).tails, Tails({40, 36}));
}

// vLLM fails an assertion here: the chunked group reads nothing at its chunk boundary and has no key there.
TEST(HitRule, GivesAGroupThatLoadsNothingTheHitAsItsTail) {
  const CacheConfig config = Config(4, 4, false, {Full(4), Chunked(4, 8)});
  const Hit hit = HitOf(config, {{0, 1}, {}}, 2, 9);
  EXPECT_EQ(hit.length, Tokens(8));
  EXPECT_EQ(hit.tails, Tails({8, 8}));
}

TEST(HitRule, AsksInsteadOfGuessing) {
  class Nothing final : public Knowledge {
   public:
    Presence Get(GroupHash) const override { return Presence::kUnknown; }
  };
  const CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  const auto answer = FindHit(config, 8, Tokens(130), Nothing());
  ASSERT_TRUE(std::holds_alternative<Question>(answer));
  EXPECT_EQ(std::get<Question>(answer).kind, Question::Kind::kChain);
  EXPECT_EQ(std::get<Question>(answer).chunk_end, 8);
}

TEST(HitRuleProperty, IsTheCoordinatorWhenEverythingIsKnown) {
  testing::CaseCounts counts;
  const uint64_t seed = 11'000'000;
  for (int64_t i = 0; i < RandomCases(100'000); ++i) {
    Random random(seed + static_cast<uint64_t>(i));
    const RandomCase one = testing::MakeRandomCase(random);
    const CacheConfig config = testing::MustCreate(one.options);
    const bool apply_eagle = random.Chance(0.8);
    const Tokens length =
        RoundDown(Tokens(one.presence.num_hashes * config.hash_block_size().value()), config.hit_alignment());
    const BoundaryQuery query{one.presence.num_hashes, length, apply_eagle};
    ASSERT_EQ(std::get<Tokens>(FindBoundary(config, query, Everything(one.presence.groups))).value(),
              testing::OracleHit(config, one.presence, length.value(), apply_eagle).length)
        << "seed " << seed + static_cast<uint64_t>(i) << " " << testing::Describe(one);
    const Hit expected = testing::OracleLookup(config, one.presence, one.num_tokens);
    ASSERT_EQ(HitOf(config, one.presence.groups, one.presence.num_hashes, one.num_tokens), expected)
        << "seed " << seed + static_cast<uint64_t>(i) << " " << testing::Describe(one);
    counts.Count(config, one.presence, expected.length.value(),
                 one.num_tokens / config.hit_alignment().value() * config.hit_alignment().value());
  }
  std::cout << counts.ToString() << "\n";
  EXPECT_TRUE(counts.Enough()) << counts.ToString();
}

}  // namespace
}  // namespace tenure::kv
