// Design §4, dependent objects: what a closed pool promises beyond the rules.
#include <array>
#include <vector>

#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

class ClosedConformance : public PoolConformance {
 protected:
  // Length of the present prefix of the chain; nothing of the chain may be present behind it.
  int PresentPrefix(uint64_t first, uint64_t count) {
    int length = 0;
    while (length < static_cast<int>(count) && Present(Key(first + static_cast<uint64_t>(length)))) ++length;
    EXPECT_EQ(CountPresent(Keys(first, count)), length) << "a suffix outlived its prefix";
    return length;
  }
  PutAnswer PutChild(uint64_t child, uint64_t parent) { return Put(Key(child), Key(parent)); }
};
INSTANTIATE_TEST_SUITE_P(Pool, ClosedConformance, ::testing::ValuesIn(ClosedPools()), FactoryName);

class ParentConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, ParentConformance, ::testing::ValuesIn(AllPools()), FactoryName);

TEST_P(ParentConformance, OnlyAClosedPoolWaitsForParents) {
  const PutAnswer answer = Put(Key(2), Key(1));
  EXPECT_EQ(answer, pool().traits().closed ? PutAnswer::kWaiting : PutAnswer::kStored);
  EXPECT_EQ(Present(Key(2)), !pool().traits().closed);
}

TEST_P(ClosedConformance, LeaseOnTheLastChunkCoversItsChain) {
  MustStoreChain(0, 50);
  const Lease lease = MustLease({Key(49)}, kLongTtl);
  EXPECT_EQ(WritePressure(5 * kRoom), 5 * kRoom);
  EXPECT_EQ(PresentPrefix(0, 50), 50);
}

TEST_P(ClosedConformance, ChainLeavesFromItsEnd) {
  MustStoreChain(0, 100);
  for (int i = 0; i < 60; ++i) {
    WritePressure(5);
    PresentPrefix(0, 100);
  }
  EXPECT_EQ(PresentPrefix(0, 100), 0);
}

TEST_P(ClosedConformance, ChunksBehindALeaseLeaveAndThoseBeforeItStay) {
  MustStoreChain(0, 50);
  const Lease lease = MustLease({Key(19)}, kLongTtl);
  WritePressure(5 * kRoom);
  EXPECT_EQ(PresentPrefix(0, 50), 20);
}

TEST_P(ClosedConformance, ParentInheritsTheRecencyOfTheChildThatLeft) {
  MustStore(Key(0));
  MustStore(Key(50));
  ASSERT_EQ(PutChild(1, 0), PutAnswer::kStored);
  Advance(kTick);
  for (uint64_t i = 100; i < 300; ++i) MustStore(Key(i));
  Advance(kTick);
  // The child of 0 is used, and as recent and as deep as 40 others.
  MustLease({Key(1)}, absl::Minutes(1)).Release();
  for (uint64_t i = 300; i < 340; ++i) ASSERT_EQ(PutChild(i, 50), PutAnswer::kStored);
  Advance(kTick);
  bool parent_alone = false;
  for (uint64_t i = 1000; Present(Key(0)); ++i) {
    MustStore(Key(i));
    parent_alone |= Present(Key(0)) && !Present(Key(1)) && CountPresent(Keys(300, 40)) > 0;
    ASSERT_LT(i, 2000u) << "0 never leaves";
  }
  EXPECT_TRUE(parent_alone) << "0 left with its child, as old as it was itself";
  EXPECT_EQ(CountPresent(Keys(100, 200)), 0);
  EXPECT_EQ(CountPresent(Keys(300, 40)), 0) << "0 left before objects as recent as its child, and deeper than 0";
}

TEST_P(ClosedConformance, RandomUseLeavesAClosedSet) {
  const uint64_t seed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  constexpr uint64_t kKeys = 600;
  // Not fewer under a sanitizer: the first thousands only fill the pool.
  constexpr int64_t kSteps = 20'000;
  int64_t evicted_seen = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const uint64_t node = 1 + random.Below(kKeys - 1);
    const ObjectKey key = Key(node);
    // A tree in which the parent of n is n / 2: leaves, branches and shared prefixes.
    Put(key, node == 1 ? std::nullopt : std::optional(Key(node / 2)));
    if (random.Chance(0.3)) {
      std::array<KeyAnswer, 1> answers{};
      pool().AcquireLease(std::array{Key(1 + random.Below(kKeys - 1))}, absl::Milliseconds(500), answers)->Forget();
    }
    if (random.Chance(0.01)) Remove(Key(1 + random.Below(kKeys - 1)));
    if (random.Chance(0.2)) Settle();
    Advance(absl::Milliseconds(random.Below(40)));
    if (step % 50 != 0) continue;
    std::vector<KeyAnswer> answers(kKeys);
    ASSERT_TRUE(pool().Probe(Keys(0, kKeys), answers).ok());
    for (uint64_t i = 2; i < kKeys; ++i) {
      if (answers[i] == KeyAnswer::kPresent) {
        ASSERT_EQ(answers[i / 2], KeyAnswer::kPresent) << "step " << step << " key " << i;
      }
    }
    evicted_seen = pool().Stats().evicted_total;
  }
  EXPECT_GT(evicted_seen, 1'000);
}

TEST_P(ClosedConformance, RemovalTakesDescendantsAtOnce) {
  MustStoreChain(0, 50);
  const Lease lease = MustLease(Keys(0, 50), kLongTtl);
  EXPECT_EQ(Remove(Key(20)), KeyAnswer::kPresent);
  EXPECT_EQ(PresentPrefix(0, 50), 20);
  EXPECT_EQ(Get(Key(30)), KeyAnswer::kAbsent);
  Settle();
  EXPECT_EQ(pool().Stats().objects, 20);
  EXPECT_EQ(pool().Stats().used, Bytes(20 * kObjectBytes));
  // What is put again is a new object: the old chunk behind it does not come back.
  MustStore(Key(20), Key(19));
  EXPECT_EQ(PresentPrefix(0, 50), 21);
  MustStore(Key(21), Key(20));
  EXPECT_EQ(PresentPrefix(0, 50), 22);
}

TEST_P(ClosedConformance, ClearOfANamespaceTakesDescendantsElsewhere) {
  const NamespaceId other = pool().OpenNamespace("model-a@tp0@group:1").value();
  MustStoreChain(0, 10);
  MustStore(Key(9, other), Key(9));
  MustStore(Key(100, other));
  ASSERT_TRUE(pool().Clear(name_space()).ok());
  EXPECT_FALSE(Present(Key(9, other)));
  EXPECT_TRUE(Present(Key(100, other)));
}

TEST_P(ClosedConformance, ChangedByteTakesDescendantsAlong) {
  MustStoreChain(0, 10);
  if (!Corrupt(Key(4))) GTEST_SKIP() << "the test cannot reach this pool's bytes";
  EXPECT_EQ(Get(Key(4)), KeyAnswer::kAbsent);
  EXPECT_EQ(PresentPrefix(0, 10), 4);
}

TEST_P(ClosedConformance, ChildrenThatCameFirstShowWithTheirParent) {
  EXPECT_EQ(PutChild(3, 2), PutAnswer::kWaiting);
  EXPECT_EQ(PutChild(2, 1), PutAnswer::kWaiting);
  EXPECT_EQ(PutChild(4, 2), PutAnswer::kWaiting);
  EXPECT_EQ(CountPresent(Keys(0, 5)), 0);
  EXPECT_EQ(Get(Key(3)), KeyAnswer::kAbsent);
  EXPECT_EQ(pool().Stats().held.waiting, 3);
  MustStore(Key(1));
  EXPECT_EQ(CountPresent(Keys(1, 4)), 4);
  EXPECT_EQ(Get(Key(3)), KeyAnswer::kPresent);
  EXPECT_EQ(pool().Stats().held.waiting, 0);
  // They are children like any other.
  const Lease lease = MustLease({Key(3)}, kLongTtl);
  Advance(kTick);
  WritePressure(2 * kRoom);
  EXPECT_EQ(CountPresent(Keys(1, 3)), 3);
  EXPECT_FALSE(Present(Key(4)));
}

TEST_P(ClosedConformance, WaitingObjectsHaveTheirShareAndNoMore) {
  int waiting = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    const PutAnswer answer = PutChild(100 + i, 1);
    if (answer == PutAnswer::kWaiting) {
      ++waiting;
    } else {
      EXPECT_EQ(answer, PutAnswer::kRefusedWaiting);
    }
  }
  EXPECT_EQ(waiting, 5);  // 2 % of 256.
  EXPECT_EQ(pool().Stats().refused_waiting_total, 50 - waiting);
  EXPECT_EQ(pool().Stats().held.waiting, waiting);
}

TEST_P(ClosedConformance, WaitingObjectLeavesWhenItsParentDoesNotCome) {
  ASSERT_EQ(PutChild(2, 1), PutAnswer::kWaiting);
  Advance(absl::Seconds(11));
  Settle();
  EXPECT_EQ(pool().Stats().held.waiting, 0);
  EXPECT_EQ(pool().Stats().used, Bytes(0));
  EXPECT_EQ(pool().Stats().evicted_waiting_total, 1);
  MustStore(Key(1));
  EXPECT_FALSE(Present(Key(2)));
}

TEST_P(ClosedConformance, WaitingObjectMakesRoomFirstAndStartsNoPass) {
  for (uint64_t i = 0; i < kHighObjects; ++i) MustStore(Key(1000 + i));
  Advance(kTick);
  int waiting = 0;
  for (uint64_t i = 0; i < 50; ++i) waiting += PutChild(100 + i, 1) == PutAnswer::kWaiting;
  EXPECT_GT(waiting, 0);
  Settle();
  EXPECT_EQ(CountPresent(Keys(1000, kHighObjects)), kHighObjects) << "a waiting put started a pass";
  const int room = kRoom - kHighObjects;
  for (int i = 0; i < room; ++i) MustStore(Key(5000 + static_cast<uint64_t>(i)));
  EXPECT_EQ(CountPresent(Keys(1000, kHighObjects)), kHighObjects);
  EXPECT_EQ(pool().Stats().evicted_waiting_total, waiting);
}

// What a removal took does not come back with a later parent.
TEST_P(ClosedConformance, RemovedWhileWaitingDoesNotShowLater) {
  ASSERT_EQ(PutChild(2, 1), PutAnswer::kWaiting);
  EXPECT_EQ(Remove(Key(2)), KeyAnswer::kAbsent);
  MustStore(Key(1));
  EXPECT_FALSE(Present(Key(2)));
}

// A save must not eat itself: whatever the room, a prompt keeps a prefix, and of all the room it was given.
TEST_P(ClosedConformance, PromptLongerThanTheRoomKeepsAPrefixOfAllTheRoom) {
  for (const int held : {0, 100, 200}) {
    Start(PoolSetup());
    const std::vector<ObjectKey> others = Keys(5000, static_cast<uint64_t>(held));
    for (const ObjectKey& key : others) MustStore(key);
    const Lease lease = MustLease(others, kLongTtl);
    std::vector<Lease> chunks;  // The saver leases the chunk it appends to.
    uint64_t saved = 0;
    for (; saved < 1000; ++saved) {
      const PutAnswer answer = Put(Key(saved), saved == 0 ? std::nullopt : std::optional(Key(saved - 1)));
      if (!IsKept(answer)) {
        EXPECT_EQ(answer, PutAnswer::kRefusedFull);
        break;
      }
      chunks.clear();
      chunks.push_back(MustLease({Key(saved)}, kLongTtl));
      Advance(absl::Milliseconds(1));
      Settle();
    }
    EXPECT_EQ(saved, static_cast<uint64_t>(kRoom - held));
    EXPECT_EQ(PresentPrefix(0, 1000), kRoom - held);
  }
}

// The same without a lease on the way: the save ends somewhere, but never in a hole.
TEST_P(ClosedConformance, UnleasedPromptLongerThanTheRoomKeepsAPrefix) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const PutAnswer answer = Put(Key(i), i == 0 ? std::nullopt : std::optional(Key(i - 1)));
    if (!IsKept(answer)) break;
    if (i % 10 == 0) Settle();
  }
  EXPECT_GE(PresentPrefix(0, 1000), kLowObjects - 1);
}

TEST_P(ClosedConformance, BatchStoresAChainInItsOrder) {
  std::vector<std::byte> bytes(kObjectBytes);
  const std::array<ConstSegment, 1> segments = {{{.data = bytes.data(), .size = bytes.size()}}};
  std::vector<PutObject> objects;
  for (uint64_t i = 0; i < 100; ++i) {
    objects.push_back(
        {.key = Key(i), .segments = segments, .parent = i == 0 ? std::nullopt : std::optional(Key(i - 1))});
  }
  std::vector<PutAnswer> answers(objects.size());
  ASSERT_TRUE(pool().Put(objects, answers).ok());
  for (const PutAnswer answer : answers) EXPECT_EQ(answer, PutAnswer::kStored);
  EXPECT_EQ(PresentPrefix(0, 100), 100);
}

TEST_P(ClosedConformance, ObjectThatNamesItselfAsParentNeverShows) {
  const PutAnswer answer = PutChild(1, 1);
  EXPECT_NE(answer, PutAnswer::kStored);
  EXPECT_FALSE(Present(Key(1)));
  // Two that wait for each other neither.
  PutChild(2, 3);
  PutChild(3, 2);
  EXPECT_EQ(CountPresent(Keys(2, 2)), 0);
  Advance(absl::Seconds(11));
  Settle();
  EXPECT_EQ(pool().Stats().used, Bytes(0));
}

TEST_P(ClosedConformance, ParentMayBeInAnotherNamespace) {
  const NamespaceId other = pool().OpenNamespace("model-a@tp0@group:1").value();
  MustStore(Key(1));
  MustStore(Key(1, other), Key(1));
  const Lease lease = MustLease({Key(1, other)}, kLongTtl);
  Advance(kTick);
  WritePressure(2 * kRoom);
  EXPECT_TRUE(Present(Key(1)));
}

}  // namespace
}  // namespace tenure::store::conformance
