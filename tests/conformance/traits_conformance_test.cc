// What a pool says of itself: it may differ from the contract only where its kind is known to, and each such difference
// is tested as stated.
#include <algorithm>

#include "gtest/gtest.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

class TraitsConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, TraitsConformance, ::testing::ValuesIn(AllPools()), FactoryName);

TEST_P(TraitsConformance, DeclaresOnlyTheDifferencesOfItsKind) {
  const std::vector<Difference>& known = GetParam().known_differences;
  for (const Difference declared : pool().traits().differences) {
    EXPECT_NE(std::find(known.begin(), known.end(), declared), known.end()) << static_cast<int>(declared);
  }
  EXPECT_EQ(pool().traits().closed, GetParam().closed);
  EXPECT_FALSE(pool().traits().name.empty());
}

TEST_P(TraitsConformance, PoolWithOneTtlKeepsALeaseThatWasReleased) {
  if (!Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "keeps rules 2 and 7";
  MustStore(Key(0));
  MustLease({Key(0)}, absl::Seconds(1)).Release();
  Advance(kLongTtl - absl::Seconds(10));
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
  Advance(absl::Seconds(10));
  WritePressure(2 * kRoom);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(TraitsConformance, PoolWithoutPinsMissesAfterTheLease) {
  if (!Declares(Difference::kNoPin)) GTEST_SKIP() << "keeps rule 3";
  MustStore(Key(0));
  MustLease({Key(0)}, ShortTtl()).Forget();
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kPresent);
  Advance(ShortTtl());
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kAbsent);
}

}  // namespace
}  // namespace tenure::store::conformance
