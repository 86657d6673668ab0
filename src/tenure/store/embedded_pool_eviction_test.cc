// In which order objects leave the embedded pool, when, and what holds them; slabs that change their size.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <tuple>
#include <vector>

#include "tenure/store/embedded_pool_testing.h"
#include "tenure/store/maintenance_thread.h"

namespace tenure::store {
namespace {

TEST_F(EmbeddedPoolTest, AChainOutgrowingTheRoomKeepsAPrefixOfAllTheRoom) {
  Make(Options(10));
  const int room = 10 * 16;
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  std::vector<Lease> leases;
  int kept = 1;
  for (uint64_t number = 1; number < 1000; ++number, ++kept) {
    leases.push_back(LeaseOf(number - 1));
    if (Put(number, number - 1) != PutAnswer::kStored) break;
  }
  EXPECT_EQ(kept, room);
  EXPECT_EQ(CountPresent(0, static_cast<uint64_t>(kept)), room);
  EXPECT_EQ(pool_->Stats().evicted_total, 0);
}

TEST_F(EmbeddedPoolTest, AChainEvictsOthersButNeverItself) {
  Make(Options(10));
  for (uint64_t number = 5000; number < 5160; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  uint64_t next = 1;
  Lease lease = LeaseOf(0);
  while (Put(next, next - 1) == PutAnswer::kStored) lease = LeaseOf(next++);
  EXPECT_EQ(next, 160u);
  EXPECT_EQ(CountPresent(0, next), 160);
  EXPECT_EQ(CountPresent(5000, 5160), 0);
}

TEST_F(EmbeddedPoolTest, AnOpenPutHoldsItsAncestors) {
  Make(Options(1));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  ASSERT_EQ(Put(1, 0), PutAnswer::kStored);
  PutAnswer answer = PutAnswer::kNotStored;
  Reservation open = Reserve(2, answer, 1);
  ASSERT_EQ(answer, PutAnswer::kStored);
  for (uint64_t number = 100; number < 113; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  for (uint64_t number = 200; number < 300; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  EXPECT_TRUE(Present(0) && Present(1));
  EXPECT_EQ(pool_->Commit(std::move(open), 0), PutAnswer::kStored);
  EXPECT_TRUE(Present(2));
}

TEST_F(EmbeddedPoolTest, NoSuffixOutlivesItsPrefix) {
  Make(Options(4));
  for (uint64_t chain = 0; chain < 20; ++chain) {
    for (uint64_t depth = 0; depth < 10; ++depth) {
      clock_.Advance(absl::Milliseconds(30));
      const uint64_t number = chain * 100 + depth;
      Put(number, depth == 0 ? std::nullopt : std::optional(number - 1));
    }
  }
  EXPECT_GT(pool_->Stats().evicted_total, 100);
  for (uint64_t chain = 0; chain < 20; ++chain) {
    for (uint64_t depth = 1; depth < 10; ++depth) {
      EXPECT_TRUE(!Present(chain * 100 + depth) || Present(chain * 100 + depth - 1)) << chain << " " << depth;
    }
  }
}

TEST_F(EmbeddedPoolTest, EquallyColdObjectsLeaveDeepestFirst) {
  MakeWithoutPasses(Options(1));
  for (uint64_t depth = 0; depth < 8; ++depth) Put(depth, depth == 0 ? std::nullopt : std::optional(depth - 1));
  for (uint64_t depth = 0; depth < 3; ++depth) Put(100 + depth, depth == 0 ? std::nullopt : std::optional(99 + depth));
  for (uint64_t number = 200; number < 205; ++number) Put(number);
  EXPECT_EQ(pool_->Stats().evicted_total, 0);
  clock_.Advance(absl::Seconds(1));
  // The longer chain has seven deeper objects than the three roots: it shrinks to the others' depth first.
  for (uint64_t number = 300; number < 305; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  EXPECT_EQ(CountPresent(0, 8), 3);
  EXPECT_EQ(CountPresent(100, 103), 3);
  EXPECT_EQ(CountPresent(200, 205), 5);
}

TEST_F(EmbeddedPoolTest, AParentInheritsTheRecencyOfItsChild) {
  MakeWithoutPasses(Options(1));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  ASSERT_EQ(Put(1, 0), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  for (uint64_t number = 100; number < 114; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  LeaseOf(1).Release();
  ASSERT_TRUE(Remove(1));
  for (uint64_t number = 200; number < 214; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  EXPECT_TRUE(Present(0)) << "written first, but its child was leased after 100 to 113 were written";
  EXPECT_EQ(CountPresent(100, 114), 1) << "one slot was free, 13 of these had to leave";
}

class RecutTest : public EmbeddedPoolTest, public testing::WithParamInterface<std::tuple<PoolMode, bool>> {};

TEST_P(RecutTest, ANewObjectSizeTakesOverAndTheOldOneComesBack) {
  const auto [mode, maintained] = GetParam();
  EmbeddedPoolOptions options = Options(20, mode);
  options.objects_max = 100'000;
  Make(options);
  const int64_t large = kSmall * 3 / 2;  // Ten a slab.
  const auto share = [&](uint64_t first, uint64_t end, int64_t size) {
    return static_cast<double>(CountPresent(first, end) * size) / static_cast<double>(20 * kSlab);
  };
  uint64_t next = 0;
  for (int round = 0; round < 2; ++round) {
    for (const int64_t size : {kSmall, large}) {
      const uint64_t first = next;
      double share_max = 0;
      for (int put = 0; put < 2000; ++put, ++next) {
        clock_.Advance(absl::Milliseconds(100));
        // Chains of ten.
        ASSERT_EQ(Put(next, next % 10 == 0 ? std::nullopt : std::optional(next - 1), size), PutAnswer::kStored);
        if (maintained) {
          while (pool_->Maintain()) {
          }
        }
        // Some of it stays in use, all over the slabs.
        if (put % 50 == 0) share_max = std::max(share_max, share(first, next, size));
        if (put % 7 == 0) LeaseOf(first + Random::Mix(next) % (next - first + 1)).Release();
      }
      EXPECT_GE(share_max, 0.9) << "round " << round << " size " << size;
    }
  }
  EXPECT_GT(pool_->Stats().recut_slabs_total, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, RecutTest,
                         testing::Combine(testing::Values(PoolMode::kIndependent, PoolMode::kClosed), testing::Bool()));

TEST_F(EmbeddedPoolTest, AHeldSlabIsNotRecut) {
  MakeWithoutPasses(Options(2, PoolMode::kIndependent));
  for (uint64_t number = 0; number < 32; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  // One leased object in each slab, one of them also pinned.
  Lease first = LeaseOf(0, absl::Seconds(5));
  Lease last = LeaseOf(31, absl::Seconds(60));
  EXPECT_EQ(Put(100, std::nullopt, kSmall * 2), PutAnswer::kRefusedFull);
  EXPECT_EQ(pool_->Stats().refused_full_total, 1);
  EXPECT_EQ(CountPresent(0, 32), 32);
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(Put(100, std::nullopt, kSmall * 2), PutAnswer::kStored) << "the first lease has run out";
  EXPECT_TRUE(Present(31));
}

TEST_F(EmbeddedPoolTest, ASizeTooManyIsRefusedAndCostsNobodyASlab) {
  EmbeddedPoolOptions options = Options(3, PoolMode::kIndependent);
  options.object_sizes_max = 2;
  Make(options);
  ASSERT_EQ(Put(0, std::nullopt, 1000), PutAnswer::kStored);
  ASSERT_EQ(Put(1, std::nullopt, 2000), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Put(2, std::nullopt, 3000), PutAnswer::kRefusedFull);
  EXPECT_EQ(CountPresent(0, 2), 2);
  ASSERT_TRUE(Remove(0));
  EXPECT_EQ(Put(2, std::nullopt, 3000), PutAnswer::kStored);
}

TEST_F(EmbeddedPoolTest, WhenEverythingIsLeasedAPutIsRefusedWithTheCounts) {
  Make(Options(1, PoolMode::kIndependent));
  std::vector<Lease> leases;
  for (uint64_t number = 0; number < 14; ++number) {
    ASSERT_EQ(Put(number), PutAnswer::kStored);
    leases.push_back(LeaseOf(number));
  }
  PutAnswer answer = PutAnswer::kNotStored;
  const Reservation open = Reserve(20, answer);
  ASSERT_EQ(Put(21), PutAnswer::kStored);
  const ObjectKey pinned_key = Key(21);
  KeyAnswer pinned = KeyAnswer::kAbsent;
  auto pins = pool_->Pin({&pinned_key, 1}, {&pinned, 1});
  EXPECT_EQ(Put(99), PutAnswer::kRefusedFull);
  EXPECT_EQ(Put(99), PutAnswer::kRefusedFull);
  const PoolStats stats = pool_->Stats();
  EXPECT_EQ(stats.refused_full_total, 2);
  EXPECT_EQ(stats.refused_by.leased, 28);
  EXPECT_EQ(stats.refused_by.pinned, 2);
  EXPECT_EQ(stats.refused_by.writing, 2);
  EXPECT_EQ(stats.held.leased, 14);
  EXPECT_EQ(stats.held.pinned, 1);
  EXPECT_EQ(stats.held.writing, 1);
  leases[3].Release();
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Put(99), PutAnswer::kStored);
  EXPECT_FALSE(Present(3));
  pins->clear();
  EXPECT_EQ(Put(98), PutAnswer::kStored);
  EXPECT_FALSE(Present(21));
}

TEST_F(EmbeddedPoolTest, APassRunsFromTheHighToTheLowWatermarkInSteps) {
  EmbeddedPoolOptions options = Options(100, PoolMode::kIndependent);
  Make(options);
  uint64_t next = 0;
  for (; next < 1520; ++next) ASSERT_EQ(Put(next), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().passes_total, 0) << "95 % is not above 95 %";
  clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(Put(next++), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().passes_total, 1);
  EXPECT_EQ(pool_->Stats().evicted_total, 0) << "a put with a free slot waits for nothing";
  EXPECT_FALSE(pool_->Maintain());
  EXPECT_EQ(pool_->Stats().evicted_total, 1521 - 1368);
  EXPECT_EQ(pool_->Stats().used, Bytes(1368 * kSmall));
  EXPECT_FALSE(pool_->Maintain());
  EXPECT_EQ(pool_->Stats().evicted_total, 1521 - 1368);
  EXPECT_TRUE(Present(1520)) << "the youngest";
}

TEST_F(EmbeddedPoolTest, AStepOfAPassIsBounded) {
  EmbeddedPoolOptions options = Options(100, PoolMode::kIndependent);
  options.pass_step_objects_max = 50;
  Make(options);
  for (uint64_t number = 0; number < 1599; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  while (pool_->Maintain()) {
  }
  ASSERT_EQ(pool_->Stats().evicted_total, 0) << "the pass began in the tick of all these puts";
  ASSERT_EQ(Put(1599), PutAnswer::kStored);
  EXPECT_TRUE(pool_->Maintain());
  EXPECT_EQ(pool_->Stats().evicted_total, 50);
  int steps = 1;
  while (pool_->Maintain()) ++steps;
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(pool_->Stats().evicted_total, 232);
}

TEST_F(EmbeddedPoolTest, AMaintenanceThreadEndsThePass) {
  Make(Options(100, PoolMode::kIndependent));
  for (uint64_t number = 0; number < 1500; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  for (uint64_t number = 1500; number < 1600; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  const MaintenanceThread maintenance(*pool_, absl::Microseconds(100));
  while (pool_->Stats().used > Bytes(1368 * kSmall)) std::this_thread::yield();
  EXPECT_EQ(pool_->Stats().evicted_total, 232);
}

}  // namespace
}  // namespace tenure::store
