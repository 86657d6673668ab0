#include "tenure/sim/slab_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::sim {
namespace {

TEST(ChooseSlab, SmallObjectsGetSlabsNear64MiBInALargeStore) {
  const std::vector<Bytes> sizes = {Bytes(4096)};
  EXPECT_EQ(ChooseSlab(sizes, Bytes(int64_t{1} << 40)), Bytes(int64_t{64} << 20));
}

TEST(ChooseSlab, ASmallStoreStillHasManySlabs) {
  const std::vector<Bytes> sizes = {Bytes(512)};
  EXPECT_LE(ChooseSlab(sizes, Bytes(1 << 20)), Bytes(1 << 14));
}

TEST(ChooseSlab, AStoreOfOneObjectIsOneSlab) {
  const std::vector<Bytes> sizes = {Bytes(1000), Bytes(10)};
  EXPECT_EQ(ChooseSlab(sizes, Bytes(1000)), Bytes(1000));
}

TEST(ChooseSlab, IsAlwaysAMultipleOfTheLargestAndFits) {
  const uint64_t seed = 11;
  Random random(seed);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<Bytes> sizes;
    for (int64_t n = random.Between(1, 4); n > 0; --n)
      sizes.push_back(Bytes(random.Between(1, int64_t{1} << random.Between(1, 31))));
    const Bytes largest = *std::max_element(sizes.begin(), sizes.end());
    const Bytes capacity = largest * random.Between(1, 1 << 16);
    const Bytes slab = ChooseSlab(sizes, capacity);
    ASSERT_GE(slab, largest) << "seed " << seed;
    ASSERT_LE(slab, Bytes(int64_t{2} << 30)) << "seed " << seed;
    ASSERT_LE(slab, capacity) << "seed " << seed;
    ASSERT_EQ(slab % largest, Bytes(0)) << "seed " << seed;
  }
}

TEST(ChooseSlab, PrefersASizeThatWastesLittleForEveryObject) {
  const std::vector<Bytes> sizes = {Bytes(int64_t{40} << 20), Bytes(int64_t{30} << 20)};
  const Bytes slab = ChooseSlab(sizes, Bytes(int64_t{1} << 40));
  EXPECT_EQ(slab % sizes[1], Bytes(0));  // 120 MiB holds three of one and four of the other.
}

}  // namespace
}  // namespace tenure::sim
