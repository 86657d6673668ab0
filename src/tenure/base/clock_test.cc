#include "tenure/base/clock.h"

#include <gtest/gtest.h>

namespace tenure {
namespace {

TEST(MonotonicTime, SumsSaturateAtBothEnds) {
  const MonotonicTime late = MonotonicTime::FromNanoseconds(INT64_MAX - 5);
  EXPECT_EQ(late + absl::Nanoseconds(5), MonotonicTime::Max());
  EXPECT_EQ(late + absl::Nanoseconds(6), MonotonicTime::Max());
  EXPECT_EQ(late + absl::InfiniteDuration(), MonotonicTime::Max());
  const MonotonicTime early = MonotonicTime::FromNanoseconds(INT64_MIN + 5);
  EXPECT_EQ(early + absl::Nanoseconds(-6), MonotonicTime::Min());
  EXPECT_EQ(early + -absl::InfiniteDuration(), MonotonicTime::Min());
}

TEST(MonotonicTime, DifferenceDoesNotOverflow) {
  EXPECT_EQ(MonotonicTime::FromNanoseconds(7) - MonotonicTime::FromNanoseconds(10), absl::Nanoseconds(-3));
  EXPECT_GT(MonotonicTime::Max() - MonotonicTime::Min(), absl::Hours(24 * 365 * 500));
}

TEST(ManualClock, StandsStillUntilMoved) {
  ManualClock clock(MonotonicTime::FromNanoseconds(100));
  EXPECT_EQ(clock.Now().nanoseconds(), 100);
  EXPECT_EQ(clock.Now().nanoseconds(), 100);
  clock.Advance(absl::Milliseconds(2));
  EXPECT_EQ(clock.Now().nanoseconds(), 2'000'100);
}

TEST(ManualClock, NeverRunsBack) {
  ManualClock clock(MonotonicTime::FromNanoseconds(100));
  clock.AdvanceTo(MonotonicTime::FromNanoseconds(50));
  EXPECT_EQ(clock.Now().nanoseconds(), 100);
  clock.Advance(absl::Nanoseconds(-1));
  EXPECT_EQ(clock.Now().nanoseconds(), 100);
}

TEST(ManualClock, StopsAtTheEndOfTime) {
  ManualClock clock(MonotonicTime::FromNanoseconds(100));
  clock.Advance(absl::InfiniteDuration());
  EXPECT_EQ(clock.Now(), MonotonicTime::Max());
}

TEST(MonotonicClock, NeverRunsBack) {
  const MonotonicClock clock;
  MonotonicTime last = clock.Now();
  EXPECT_GT(last.nanoseconds(), 0);
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace tenure
