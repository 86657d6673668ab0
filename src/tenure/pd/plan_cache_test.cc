#include "tenure/pd/plan_cache.h"

#include <gtest/gtest.h>

#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

Pull PullOf(uint64_t base, int64_t tp_rank = 0) {
  return TinyPull(TinyLayout({2, tp_rank, 1, 0}, base, 4), "d", std::nullopt);
}

PlanCache MakeCache(size_t layouts_max) {
  return PlanCache(TinyLayout({1, 0, 1, 0}, 1 << 20, 4), TinyTraits(), layouts_max);
}

TEST(PlanCache, PlanOfALayoutIsMadeOnce) {
  PlanCache cache = MakeCache(2);
  const auto first = cache.Find(PullOf(1 << 24));
  EXPECT_TRUE(first->plan.ok());
  EXPECT_EQ(first->consumers_needed.value_or(0), 2);
  EXPECT_EQ(cache.Find(PullOf(1 << 24)), first);
  EXPECT_NE(cache.Find(PullOf(1 << 25)), first);
}

TEST(PlanCache, LayoutThatWasUsedLongestAgoIsDroppedAndStaysGoodForItsUsers) {
  PlanCache cache = MakeCache(2);
  const auto first = cache.Find(PullOf(1 << 24));
  cache.Find(PullOf(1 << 25));
  cache.Find(PullOf(1 << 24));
  cache.Find(PullOf(1 << 26));
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Find(PullOf(1 << 24)), first);
  EXPECT_EQ(first->pull.kv_caches_base_addr[0], uint64_t{1} << 24);
}

TEST(PlanCache, ErrorsAreKeptToo) {
  PlanCache cache = MakeCache(2);
  Pull pull = PullOf(1 << 24);
  pull.registered_layer_names[0] = "another";
  const auto failed = cache.Find(pull);
  EXPECT_FALSE(failed->plan.ok());
  EXPECT_TRUE(failed->consumers_needed.ok());
  EXPECT_EQ(cache.Find(pull), failed);
}

TEST(PlanCache, ConsumersAreTheirRanksAndOnlyUntoldPipelineRanksAreAddressesEdge11) {
  PlanCache cache = MakeCache(8);
  Pull pull = PullOf(1 << 24, 1);
  const HandoffConsumer consumer = cache.Find(pull)->consumer;
  pull.remote_port = 2;
  EXPECT_EQ(cache.Find(pull)->consumer, consumer);
  pull.remote_pp_size = 2;
  pull.remote_pp_rank.reset();
  const HandoffConsumer untold = cache.Find(pull)->consumer;
  pull.remote_port = 3;
  EXPECT_NE(cache.Find(pull)->consumer.engine, untold.engine);
}

}  // namespace
}  // namespace tenure::pd
