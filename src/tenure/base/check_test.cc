#include "tenure/base/check.h"

#include <gtest/gtest.h>

namespace tenure {
namespace {

TEST(CheckDeathTest, BrokenInvariantStopsTheProcessAndNamesItself) {
  const int value = 3;
  EXPECT_DEATH(TENURE_CHECK(value == 4), "broken invariant value == 4 at .*check_test.cc:[0-9]+");
}

TEST(Check, HoldsQuietlyAndEvaluatesOnce) {
  int evaluations = 0;
  TENURE_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace tenure
