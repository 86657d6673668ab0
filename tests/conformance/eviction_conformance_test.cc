// Rules 3 and 6: what leaves a pool, when, and what a refused put is told.
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

class EvictionConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, EvictionConformance, ::testing::ValuesIn(AllPools()), FactoryName);

TEST_P(EvictionConformance, NothingLeavesBelowTheHighWatermark) {
  for (uint64_t i = 0; i < kHighObjects; ++i) {
    MustStore(Key(i));
    Settle();
  }
  Advance(absl::Hours(1));
  Settle();
  EXPECT_EQ(CountPresent(Keys(0, kHighObjects)), kHighObjects);
  EXPECT_EQ(pool().Stats().evicted_total, 0);
  EXPECT_EQ(pool().Stats().passes_total, 0);
}

TEST_P(EvictionConformance, PassEndsAtTheLowWatermarkColdestFirst) {
  if (Declares(Difference::kOwnWatermark)) GTEST_SKIP() << "a watermark of its own";
  const int count = kHighObjects + 1;
  for (uint64_t i = 0; i < count; ++i) {
    MustStore(Key(i));
    Advance(kTick);
  }
  Settle();
  EXPECT_EQ(pool().Stats().passes_total, 1);
  EXPECT_EQ(pool().Stats().objects, kLowObjects);
  EXPECT_EQ(pool().Stats().evicted_total, count - kLowObjects);
  EXPECT_EQ(pool().Stats().evicted_bytes_total, Bytes((count - kLowObjects) * kObjectBytes));
  EXPECT_EQ(CountPresent(Keys(0, count - kLowObjects)), 0);
  EXPECT_EQ(CountPresent(Keys(count - kLowObjects, kLowObjects)), kLowObjects);
}

// A pool without eviction answers "full" for ever.
TEST_P(EvictionConformance, TenTimesTheCapacityIsWrittenWithoutARefusal) {
  for (uint64_t i = 0; i < 10 * kRoom; ++i) {
    MustStore(Key(i));
    Advance(kTick);
    if (i % 16 == 0) Settle();
  }
  EXPECT_EQ(CountPresent(Keys(10 * kRoom - 200, 200)), 200);
  EXPECT_EQ(pool().Stats().refused_full_total, 0);
}

TEST_P(EvictionConformance, PutNeedsNoBackgroundWork) {
  for (uint64_t i = 0; i < 10 * kRoom; ++i) {
    ASSERT_EQ(Put(Key(i)), PutAnswer::kStored);
    Advance(kTick);
  }
  EXPECT_EQ(CountPresent(Keys(10 * kRoom - 200, 200)), 200);
}

TEST_P(EvictionConformance, FullPoolOfLeasesRefusesAtOnceAndSaysWhy) {
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  const Lease lease = MustLease(keys, kLongTtl);
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kRefusedFull);
  Settle();
  PoolStats stats = pool().Stats();
  EXPECT_EQ(stats.refused_full_total, 1);
  EXPECT_EQ(stats.refused_by.leased, kRoom);
  EXPECT_EQ(stats.refused_by.pinned, 0);
  EXPECT_EQ(stats.held.leased, kRoom);
  EXPECT_EQ(CountPresent(keys), kRoom);
  // A new deadline later, room appears by itself.
  Advance(kLongTtl);
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kStored);
}

// A refusal that is remembered must not outlive its reason.
TEST_P(EvictionConformance, RefusedPutSucceedsAsSoonAsOneLeaseEnds) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "no release";
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  std::vector<Lease> leases;
  for (const ObjectKey& key : keys) leases.push_back(MustLease({key}, kLongTtl));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Put(Key(1000 + static_cast<uint64_t>(i))), PutAnswer::kRefusedFull);
    leases[static_cast<size_t>(i * 7)].Release();
    EXPECT_EQ(Put(Key(2000 + static_cast<uint64_t>(i))), PutAnswer::kStored);
    EXPECT_FALSE(Present(keys[static_cast<size_t>(i * 7)]));
    leases.push_back(MustLease({Key(2000 + static_cast<uint64_t>(i))}, kLongTtl));
  }
  ASSERT_EQ(Remove(keys[255]), KeyAnswer::kPresent);
  EXPECT_EQ(Put(Key(3000)), PutAnswer::kStored);
}

TEST_P(EvictionConformance, RefusedPutSucceedsAsSoonAsTheShortestLeaseRunsOut) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "one TTL for all";
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  for (int i = 0; i < kRoom; ++i) {
    MustLease({keys[static_cast<size_t>(i)]}, absl::Seconds(10 + (i * 37) % kRoom)).Forget();
  }
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kRefusedFull);
  Advance(absl::Seconds(10));
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kStored);
  EXPECT_FALSE(Present(keys[0]));
}

// What a put accepted is not taken by the pass that the same put set off, even when nothing else could leave: better a
// refusal, which the saver sees, than a loss, which nobody sees.
TEST_P(EvictionConformance, AcceptedPutIsNotLostWithinATick) {
  const std::vector<ObjectKey> keys = Keys(0, kHighObjects - 3);
  for (const ObjectKey& key : keys) MustStore(key);
  const Lease lease = MustLease(keys, kLongTtl);
  Advance(kTick);
  for (uint64_t i = 1000; i < 1020; ++i) {
    const PutAnswer answer = Put(Key(i));
    Settle();
    EXPECT_EQ(Present(Key(i)), answer == PutAnswer::kStored) << i << " " << ToString(answer);
  }
  EXPECT_EQ(CountPresent(keys), static_cast<int>(keys.size()));
}

TEST_P(EvictionConformance, SpaceOfOneSizeServesAnother) {
  for (const int64_t size : {kObjectBytes, 3 * kObjectBytes, kObjectBytes / 2, 16 * kObjectBytes, kObjectBytes}) {
    int present = 0;
    const auto room = static_cast<uint64_t>((int64_t{256} << 10) / size);
    for (uint64_t i = 0; i < 3 * room; ++i) {
      EXPECT_EQ(Put(Key(static_cast<uint64_t>(size) * 10'000 + i), std::nullopt, size), PutAnswer::kStored) << size;
      Advance(kTick);
    }
    for (uint64_t i = 0; i < 3 * room; ++i) present += Present(Key(static_cast<uint64_t>(size) * 10'000 + i));
    EXPECT_GE(present * size, (int64_t{256} << 10) * 85 / 100) << size;
    EXPECT_LE(pool().Stats().used, pool().Stats().capacity);
  }
}

}  // namespace
}  // namespace tenure::store::conformance
