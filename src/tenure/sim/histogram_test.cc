#include "tenure/sim/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::sim {
namespace {

TEST(Histogram, SmallValuesAreExact) {
  Histogram histogram;
  for (int64_t value = 1; value <= 50; ++value) histogram.Add(value);
  EXPECT_EQ(histogram.Quantile(0.5), 25);
  EXPECT_EQ(histogram.Quantile(0.99), 50);
  EXPECT_EQ(histogram.Quantile(1.0), 50);
  EXPECT_DOUBLE_EQ(histogram.mean(), 25.5);
  EXPECT_EQ(histogram.maximum(), 50);
}

TEST(Histogram, WithoutSamplesEverythingIsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0.0);
}

TEST(Histogram, QuantilesAreWithinABucketOfTheExactOnes) {
  const uint64_t seed = 7;
  Random random(seed);
  Histogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<int64_t>(random() >> random.Below(64)) & INT64_MAX);
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double quantile : {0.001, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    const int64_t exact = values[static_cast<size_t>(std::ceil(quantile * 20'000)) - 1];
    EXPECT_LE(histogram.Quantile(quantile), exact) << "seed " << seed;
    EXPECT_GE(static_cast<double>(histogram.Quantile(quantile)), static_cast<double>(exact) * 0.968) << "seed " << seed;
  }
}

TEST(Histogram, ExtremesHaveABucket) {
  Histogram histogram;
  histogram.Add(INT64_MAX);
  histogram.Add(-5);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_GT(histogram.Quantile(1.0), INT64_MAX / 33 * 32);
}

}  // namespace
}  // namespace tenure::sim
