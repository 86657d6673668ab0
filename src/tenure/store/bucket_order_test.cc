#include "tenure/store/bucket_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::store {
namespace {

TEST(TickScale, CountsStepsOf64MillisecondsFromTheOrigin) {
  const TickScale ticks(MonotonicTime::FromNanoseconds(1000));
  EXPECT_EQ(ticks.ToTick(MonotonicTime::FromNanoseconds(1000)), 0);
  EXPECT_EQ(ticks.ToTick(MonotonicTime::FromNanoseconds(1000 + 63'999'999)), 0);
  EXPECT_EQ(ticks.ToTick(MonotonicTime::FromNanoseconds(1000 + 64'000'000)), 1);
  EXPECT_EQ(ticks.ToTick(MonotonicTime::FromNanoseconds(999)), -1);
  EXPECT_EQ(ticks.ToTick(MonotonicTime::FromNanoseconds(1000 - 64'000'000)), -1);
  EXPECT_EQ(ticks.ToTime(2).nanoseconds(), 1000 + 128'000'000);
}

TEST(TickScale, SaturatesFarAway) {
  const TickScale ticks(MonotonicTime::FromNanoseconds(-5));
  EXPECT_EQ(ticks.ToTick(MonotonicTime::Max()), INT32_MAX);
  EXPECT_EQ(ticks.ToTick(MonotonicTime::Min()), INT32_MIN);
  EXPECT_EQ(ticks.ToTime(INT32_MIN), MonotonicTime::Min());
}

TEST(OrderKey, EarlierTickFirstThenDeeper) {
  EXPECT_LT(MakeOrderKey(-1, 0), MakeOrderKey(0, 9));
  EXPECT_LT(MakeOrderKey(5, 9), MakeOrderKey(5, 8));
  EXPECT_LT(MakeOrderKey(INT32_MAX, 0), kNoOrderKey);
  EXPECT_EQ(TickOf(MakeOrderKey(-7, 3)), -7);
}

TEST(BucketOrder, LeavesByKeyThenFirstInFirstOut) {
  constexpr EntryIndex kEntries = 300;
  auto entries = EntryArena::Create(kEntries);
  ASSERT_TRUE(entries.ok());
  const uint64_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  BucketOrder order;
  std::vector<std::pair<OrderKey, EntryIndex>> model;  // In the order of arrival.
  std::vector<EntryIndex> outside;
  for (EntryIndex entry = 0; entry < kEntries; ++entry) outside.push_back(entry);
  for (int step = 0; step < 50'000; ++step) {
    if (!outside.empty() && random.Chance(0.5)) {
      const EntryIndex entry = outside.back();
      outside.pop_back();
      const OrderKey key = MakeOrderKey(static_cast<int32_t>(random.Below(20)), static_cast<uint32_t>(random.Below(3)));
      order.Append(*entries, entry, key);
      model.emplace_back(key, entry);
      EXPECT_EQ(order.KeyOf((*entries)[entry]), key);
    } else if (!model.empty()) {
      const auto first =
          std::min_element(model.begin(), model.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      ASSERT_EQ(order.FirstKey(), first->first);
      ASSERT_EQ(order.First(), first->second);
      const auto leaving =
          random.Chance(0.5) ? first : model.begin() + static_cast<int64_t>(random.Below(model.size()));
      order.Remove(*entries, leaving->second);
      outside.push_back(leaving->second);
      model.erase(leaving);
    }
    ASSERT_EQ(order.size(), static_cast<int64_t>(model.size()));
  }
  while (!model.empty()) {
    order.Remove(*entries, model.back().second);
    model.pop_back();
  }
  EXPECT_EQ(order.FirstKey(), kNoOrderKey);
  EXPECT_EQ(order.First(), kNoEntry);
}

}  // namespace
}  // namespace tenure::store
