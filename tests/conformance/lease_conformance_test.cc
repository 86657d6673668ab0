// Rules 1, 2, 3 and 7: probes, leases and their holders.
#include <array>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

using ::testing::ElementsAre;

class LeaseConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, LeaseConformance, ::testing::ValuesIn(AllPools()), FactoryName);

TEST_P(LeaseConformance, ProbeAnswersEachKeyInOrder) {
  MustStore(Key(1));
  MustStore(Key(3));
  const std::vector<ObjectKey> keys = {Key(3), Key(2), Key(1), Key(3), Key(4)};
  std::vector<KeyAnswer> answers(keys.size());
  ASSERT_TRUE(pool().Probe(keys, answers).ok());
  EXPECT_THAT(answers, ElementsAre(KeyAnswer::kPresent, KeyAnswer::kAbsent, KeyAnswer::kPresent, KeyAnswer::kPresent,
                                   KeyAnswer::kAbsent));
}

TEST_P(LeaseConformance, EmptyBatchesAreAnswered) {
  EXPECT_TRUE(pool().Probe({}, {}).ok());
  EXPECT_TRUE(pool().Put({}, {}).ok());
  EXPECT_TRUE(pool().Get({}, {}).ok());
  EXPECT_TRUE(pool().Remove({}, {}).ok());
  EXPECT_EQ(pool().AcquireLease({}, absl::Seconds(1), {}).value().size(), 0u);
}

TEST_P(LeaseConformance, SameHashInAnotherNamespaceIsAnotherObject) {
  const NamespaceId other = pool().OpenNamespace("model-b@tp0").value();
  ASSERT_NE(other, name_space());
  EXPECT_EQ(pool().OpenNamespace("model-b@tp0").value(), other);
  MustStore(Key(1));
  EXPECT_FALSE(Present(Key(1, other)));
  MustStore(Key(1, other));
  EXPECT_EQ(Get(Key(1)), KeyAnswer::kPresent);
  EXPECT_EQ(Get(Key(1, other)), KeyAnswer::kPresent);
}

// A store whose existence checks renew leases ends full with nothing to evict.
TEST_P(LeaseConformance, ProbingEverythingAllTheTimeStopsNoPut) {
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  for (int i = 0; i < 100; ++i) {
    CountPresent(keys);
    Advance(kTick);
    EXPECT_EQ(WritePressure(5), 5);
  }
  EXPECT_EQ(CountPresent(keys), 0);
}

TEST_P(LeaseConformance, ProbeDoesNotMoveRecency) {
  MustStore(Key(0));
  Advance(kTick);
  for (uint64_t i = 1; i < kHighObjects; ++i) MustStore(Key(i));
  Advance(kTick);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Present(Key(0)));
  WritePressure(1);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(LeaseConformance, LeaseAnswersEachKeyAndHoldsOnlyWhatWasThere) {
  MustStore(Key(1));
  const std::vector<ObjectKey> keys = {Key(2), Key(1), Key(2)};
  std::vector<KeyAnswer> answers(keys.size());
  Lease lease = pool().AcquireLease(keys, absl::Seconds(60), answers).value();
  EXPECT_THAT(answers, ElementsAre(KeyAnswer::kAbsent, KeyAnswer::kPresent, KeyAnswer::kAbsent));
  EXPECT_EQ(lease.size(), 1u);
  // Stored after the lease: not leased.
  MustStore(Key(2));
  Advance(kTick);
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(1)));
  EXPECT_FALSE(Present(Key(2)));
}

TEST_P(LeaseConformance, LeaseMovesToTheHotEnd) {
  MustStore(Key(0));
  Advance(kTick);
  MustStore(Key(1));
  Advance(kTick);
  for (uint64_t i = 2; i < kHighObjects; ++i) MustStore(Key(i));
  Advance(kTick);
  MustLease({Key(0)}, absl::Seconds(1)).Release();
  WritePressure(1);
  EXPECT_TRUE(Present(Key(0)));
  EXPECT_FALSE(Present(Key(1)));
}

TEST_P(LeaseConformance, LeasedObjectsOutliveAnyPressure) {
  const std::vector<ObjectKey> keys = Keys(0, kRoom / 2);
  for (const ObjectKey& key : keys) MustStore(key);
  const Lease lease = MustLease(keys, kLongTtl);
  Advance(kTick);
  EXPECT_EQ(WritePressure(10 * kRoom), 10 * kRoom);
  for (const ObjectKey& key : keys) EXPECT_EQ(Get(key), KeyAnswer::kPresent);
}

TEST_P(LeaseConformance, ExpiredLeaseIsEvictable) {
  const absl::Duration ttl = ShortTtl();
  MustStore(Key(0));
  MustLease({Key(0)}, ttl).Forget();
  Advance(ttl - absl::Nanoseconds(1));
  MustLease({Key(0)}, ttl).Forget();
  Advance(ttl - absl::Seconds(1));
  WritePressure(kRoom);
  EXPECT_TRUE(Present(Key(0)));
  Advance(absl::Seconds(1));
  WritePressure(kRoom);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(LeaseConformance, ShorterLeaseDoesNotShortenALongerOne) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "one TTL for all";
  MustStore(Key(0));
  MustLease({Key(0)}, kLongTtl).Forget();
  MustLease({Key(0)}, absl::Seconds(1)).Forget();
  Advance(absl::Minutes(5));
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

TEST_P(LeaseConformance, OnlyReleaseShortens) {
  MustStore(Key(0));
  const Lease lease = MustLease({Key(0)}, kLongTtl);
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kPresent);
  EXPECT_EQ(Put(Key(0)), PutAnswer::kExists);
  EXPECT_EQ(Put(Key(0), std::nullopt, 2 * kObjectBytes), PutAnswer::kSizeDiffers);
  EXPECT_TRUE(Present(Key(0)));
  Advance(absl::Minutes(5));
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

TEST_P(LeaseConformance, GetDoesNotMoveRecency) {
  MustStore(Key(0));
  Advance(kTick);
  for (uint64_t i = 1; i < kHighObjects; ++i) MustStore(Key(i));
  Advance(kTick);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Get(Key(0)), KeyAnswer::kPresent);
  WritePressure(1);
  EXPECT_FALSE(Present(Key(0)));
}

// The copy is protected by its pin; the lease decides only whether the object is still there when the copy begins.
TEST_P(LeaseConformance, GetAfterTheLeaseIsAnswered) {
  MustStore(Key(0));
  MustLease({Key(0)}, ShortTtl()).Forget();
  Advance(ShortTtl());
  EXPECT_EQ(Get(Key(0)), Declares(Difference::kNoPin) ? KeyAnswer::kAbsent : KeyAnswer::kPresent);
}

TEST_P(LeaseConformance, ReleasedObjectIsEvictableAtOnce) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "no release";
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (int i = 0; i < kRoom; ++i) Put(keys[static_cast<size_t>(i)]);
  Lease lease = MustLease(keys, absl::Hours(1));
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kRefusedFull);
  lease.Release();
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kStored);
}

TEST_P(LeaseConformance, ReleaseEndsNoOtherHoldersLease) {
  MustStore(Key(0));
  Lease first = MustLease({Key(0)}, kLongTtl);
  Lease second = MustLease({Key(0)}, kLongTtl);
  first.Release();
  first.Release();  // Once for a handle, however often it is asked.
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
  second.Release();
  if (Declares(Difference::kOneLeaseTtl)) return;
  WritePressure(2 * kRoom);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(LeaseConformance, KeyNamedTwiceIsHeldTwiceAndReleasedWhole) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "no release";
  MustStore(Key(0));
  Lease lease = MustLease({Key(0), Key(0)}, kLongTtl);
  EXPECT_EQ(lease.size(), 2u);
  lease.Release();
  WritePressure(2 * kRoom);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(LeaseConformance, HandleThatRanOutReleasesNothing) {
  MustStore(Key(0));
  Lease old = MustLease({Key(0)}, ShortTtl());
  Advance(ShortTtl());
  const Lease current = MustLease({Key(0)}, kLongTtl);
  old.Release();
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

// Two handles, the shorter of which ran out while the longer held: the holders left are one.
TEST_P(LeaseConformance, HandleThatRanOutBesideALongerOneLeavesThatOneInForce) {
  MustStore(Key(0));
  const Lease longer = MustLease({Key(0)}, kLongTtl);
  Lease shorter = MustLease({Key(0)}, absl::Seconds(1));
  Advance(absl::Seconds(2));
  shorter.Release();
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

TEST_P(LeaseConformance, HandleOfARemovedObjectDoesNotTouchItsSuccessor) {
  MustStore(Key(0));
  Lease old = MustLease({Key(0)}, kLongTtl);
  ASSERT_EQ(Remove(Key(0)), KeyAnswer::kPresent);
  MustStore(Key(0));
  const Lease current = MustLease({Key(0)}, kLongTtl);
  old.Release();
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

TEST_P(LeaseConformance, MovedHandleHoldsAndTheEmptyOneDoesNot) {
  MustStore(Key(0));
  Lease first = MustLease({Key(0)}, kLongTtl);
  Lease second = std::move(first);
  first.Release();  // NOLINT(bugprone-use-after-move): a moved-from handle holds nothing.
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(0)));
}

TEST_P(LeaseConformance, HandleDestroyedEndsItsLease) {
  if (Declares(Difference::kOneLeaseTtl)) GTEST_SKIP() << "no release";
  MustStore(Key(0));
  { const Lease lease = MustLease({Key(0)}, kLongTtl); }
  EXPECT_EQ(pool().Stats().held.leased, 0);
}

// Pins and leases that leak end a cache's hit rate after hours: after any number of requests that end in any way, what
// is held is what is in flight.
TEST_P(LeaseConformance, RequestsThatEndInAnyWayLeaveNothingHeld) {
  const uint64_t seed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const absl::Duration ttl = ShortTtl();
  std::vector<Lease> in_flight;
  for (int64_t i = 0; i < RandomCases(100'000); ++i) {
    const ObjectKey key = Key(random.Below(300));
    std::array<KeyAnswer, 1> answers{};
    Lease lease = pool().AcquireLease(std::array{key}, ttl, answers).value();
    if (answers[0] == KeyAnswer::kAbsent) Put(key);
    const uint64_t end = random.Below(8);
    if (end == 0) in_flight.push_back(std::move(lease));
    if (end == 1) lease.Forget();
    if (end == 2) Remove(key);
    if (in_flight.size() > 32) in_flight.erase(in_flight.begin());
    Advance(absl::Milliseconds(random.Below(200)));
  }
  in_flight.clear();
  Advance(ttl);
  const PoolStats stats = pool().Stats();
  EXPECT_EQ(stats.held.leased, 0);
  EXPECT_EQ(stats.held.pinned, 0);
  EXPECT_EQ(stats.held.writing, 0);
  EXPECT_EQ(WritePressure(2 * kRoom), 2 * kRoom);
}

}  // namespace
}  // namespace tenure::store::conformance
