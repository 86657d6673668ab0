// When a step is worth a save order: the tracker's vectors of store_connector spec §14.10.
#include "tenure/engine/save_tracker.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using kv::testing::Config;
using kv::testing::Full;
using kv::testing::State;

constexpr int64_t kManyHashes = 1000;

const kv::CacheConfig& Coarse() {
  static const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  return config;
}
const kv::CacheConfig& Fine() {
  static const kv::CacheConfig config = Config(4, 16, true, {Full(16), State(16)});
  return config;
}

// Up to where to save, -1 for no save.
int64_t Saved(SaveTracker& tracker, const kv::CacheConfig& config, int64_t prompt, int64_t hashes = kManyHashes) {
  const auto step = tracker.Next(config, Tokens(prompt), hashes);
  return step ? step->length.value() : -1;
}

std::vector<int32_t> Ids(int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(SaveTrackerTest, SavesWholeBlocksAndOnlyNewOnes) {
  SaveTracker tracker(Tokens(40), Tokens(100), {});
  EXPECT_EQ(Saved(tracker, Coarse(), 100), 32);
  EXPECT_EQ(Saved(tracker, Coarse(), 100), -1);
  tracker.Extend(Tokens(7), {});
  EXPECT_EQ(Saved(tracker, Coarse(), 100), -1);
  tracker.Extend(Tokens(1), {});
  EXPECT_EQ(Saved(tracker, Coarse(), 100), 48);
  SaveTracker shorter(Tokens(15), Tokens(100), {});
  EXPECT_EQ(Saved(shorter, Coarse(), 100), -1);
}

TEST(SaveTrackerTest, PublishesAFineTailOnceWhenThePromptIsCovered) {
  SaveTracker tracker(Tokens(40), Tokens(45), {});
  EXPECT_EQ(tracker.Next(Fine(), Tokens(45), kManyHashes)->publish_tail, false);
  tracker.Extend(Tokens(4), {});
  EXPECT_EQ(Saved(tracker, Fine(), 45), -1) << "44 of 45 tokens";
  tracker.Extend(Tokens(1), {});
  const auto step = tracker.Next(Fine(), Tokens(45), kManyHashes);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->length, Tokens(32));
  EXPECT_TRUE(step->publish_tail);
  EXPECT_EQ(Saved(tracker, Fine(), 45), -1);
  tracker.Extend(Tokens(3), {});
  EXPECT_FALSE(tracker.Next(Fine(), Tokens(45), kManyHashes)->publish_tail);
}

TEST(SaveTrackerTest, PublishesNothingWithoutFineHits) {
  SaveTracker tracker(Tokens(45), Tokens(45), {});
  EXPECT_FALSE(tracker.Next(Coarse(), Tokens(45), kManyHashes)->publish_tail);
  EXPECT_EQ(Saved(tracker, Coarse(), 45), -1);
}

TEST(SaveTrackerTest, WaitsForTheHashOfABlock) {
  SaveTracker tracker(Tokens(64), Tokens(64), {});
  EXPECT_EQ(Saved(tracker, Coarse(), 64, 3), 48);
  EXPECT_EQ(Saved(tracker, Coarse(), 64, 3), -1);
  EXPECT_EQ(Saved(tracker, Coarse(), 64, 4), 64);
}

TEST(SaveTrackerTest, TokensOfAStepAreWhatItAdds) {
  const std::vector<int32_t> ids = Ids(64);
  SaveTracker tracker(Tokens(40), Tokens(64), {ids.begin(), ids.begin() + 40});
  EXPECT_EQ(tracker.Next(Coarse(), Tokens(64), kManyHashes)->tokens, (TokenWindow{Tokens(0), Ids(32)}));
  tracker.Extend(Tokens(24), std::span(ids).subspan(40));
  const auto step = tracker.Next(Coarse(), Tokens(64), kManyHashes);
  EXPECT_EQ(step->tokens, (TokenWindow{Tokens(32), {ids.begin() + 32, ids.end()}}));
}

TEST(SaveTrackerTest, TokensThatNobodyToldAreLeftOut) {
  SaveTracker tracker(Tokens(40), Tokens(64), {});
  EXPECT_EQ(tracker.Next(Coarse(), Tokens(64), kManyHashes)->tokens, (TokenWindow{Tokens(0), {}}));
}

}  // namespace
}  // namespace tenure::engine
