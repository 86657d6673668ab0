#include "tenure/store/index_shard.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tenure/base/random.h"
#include "tenure/store/key_hash.h"

namespace tenure::store {
namespace {

MonotonicTime At(int64_t milliseconds) { return MonotonicTime() + absl::Milliseconds(milliseconds); }

class IndexShardTest : public testing::Test {
 protected:
  static constexpr int64_t kEntries = 64;

  IndexShardTest()
      : arena_(std::move(EntryArena::Create(kEntries).value())),
        policy_(MakeLruPolicy()),
        slots_(KeyTable::SlotsFor(kEntries)),
        shard_(arena_, {.entries_max = kEntries,
                        .table = slots_,
                        .object_sizes_max = 2,
                        .waiting_ttl = 1'000'000'000,
                        .policy = policy_.get()}) {
    EXPECT_TRUE(shard_.Init().ok());
  }

  static ObjectKey Key(uint64_t number) {
    std::array<uint8_t, 16> bytes{};
    const uint64_t word = Random::Mix(number + 1);
    std::memcpy(bytes.data(), &word, sizeof word);
    return {NamespaceId(0), kv::BlockHash::FromTrusted(bytes)};
  }
  static HashedKey Hashed(const ObjectKey& key) { return {&key, HashOf(key)}; }

  EntryId Put(uint64_t number, MonotonicTime now, uint16_t size_class = 0) {
    const ObjectKey key = Key(number);
    const IndexShard::Reserved reserved = shard_.Reserve(Hashed(key), 100, ObjectKind::kFull);
    EXPECT_EQ(reserved.answer, PutAnswer::kStored);
    IndexShard::Placement placement;
    placement.slot = {0, static_cast<uint32_t>(number), size_class};
    EXPECT_EQ(shard_.Place(reserved.entry.index, placement), IndexShard::Placed::kReady);
    EXPECT_EQ(shard_.Commit(reserved.entry.index, 0, now).answer, PutAnswer::kStored);
    return reserved.entry;
  }
  EntryRef Lease(uint64_t number, MonotonicTime now, MonotonicTime deadline) {
    const std::array<ObjectKey, 1> keys = {Key(number)};
    const std::array<uint64_t, 1> hashes = {HashOf(keys[0])};
    const std::array<uint32_t, 1> members = {0};
    std::array<KeyAnswer, 1> answers{};
    std::vector<EntryRef> leased;
    shard_.Lease({keys, hashes, members}, now, deadline, answers, leased);
    return leased.empty() ? EntryRef{} : leased[0];
  }
  void Release(EntryRef ref, MonotonicTime now) { shard_.Release({&ref, 1}, now); }
  // The victims that leave until none can, in their order.
  std::vector<EntryIndex> DrainAll(MonotonicTime now) {
    std::vector<Doomed> victims;
    shard_.TakeColdest(-1, kNoOrderKey - 1, SIZE_MAX, INT64_MAX, now, victims);
    std::vector<EntryIndex> order;
    for (const Doomed& victim : victims) {
      order.push_back(victim.entry.index);
      EXPECT_TRUE(shard_.Unpin(victim.entry.index).has_value());
    }
    return order;
  }

  EntryArena arena_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<KeyTable::Slot> slots_;
  IndexShard shard_;
};

TEST_F(IndexShardTest, VictimsLeaveLeastRecentlyLeasedFirstOverAllClasses) {
  const EntryId a = Put(1, At(0), 0);
  const EntryId b = Put(2, At(100), 1);
  const EntryId c = Put(3, At(200), 0);
  Lease(1, At(300), At(310));
  EXPECT_EQ(DrainAll(At(400)), (std::vector<EntryIndex>{b.index, c.index, a.index}));
  EXPECT_EQ(shard_.counters().evicted, 3);
  EXPECT_EQ(shard_.counters().objects, 0);
}

TEST_F(IndexShardTest, ALeasedEntryIsParkedUntilItsDeadlineToTheNanosecond) {
  Put(1, At(0));
  Lease(1, At(0), At(5000));
  EXPECT_EQ(shard_.PeekColdest(-1, At(4999)), kNoOrderKey);
  EXPECT_EQ(shard_.HeldInTheWay().leased, 1);
  EXPECT_EQ(shard_.NextParkedDeadline(), At(5000).nanoseconds());
  EXPECT_EQ(shard_.PeekColdest(-1, MonotonicTime::FromNanoseconds(At(5000).nanoseconds() - 1)), kNoOrderKey);
  EXPECT_NE(shard_.PeekColdest(-1, At(5000)), kNoOrderKey);
  EXPECT_EQ(shard_.HeldInTheWay().leased, 0);
}

TEST_F(IndexShardTest, OnlyTheLastHolderEndsALease) {
  Put(1, At(0));
  const EntryRef first = Lease(1, At(0), At(5000));
  const EntryRef second = Lease(1, At(0), At(1000));
  Release(first, At(10));
  EXPECT_EQ(shard_.Held(At(20)).leased, 1);
  Release(second, At(20));
  EXPECT_EQ(shard_.Held(At(20)).leased, 0);
}

TEST_F(IndexShardTest, HoldersOfAnExpiredLeaseCountNoMore) {
  Put(1, At(0));
  Lease(1, At(0), At(100));
  const EntryRef fresh = Lease(1, At(100), At(500));
  Release(fresh, At(200));
  EXPECT_EQ(shard_.Held(At(200)).leased, 0);
}

TEST_F(IndexShardTest, AReleasedParkedEntryMayLeaveAtOnce) {
  const EntryId entry = Put(1, At(0));
  const EntryRef ref = Lease(1, At(0), At(5000));
  EXPECT_EQ(shard_.PeekColdest(-1, At(1)), kNoOrderKey);
  Release(ref, At(2));
  EXPECT_EQ(DrainAll(At(2)), std::vector<EntryIndex>{entry.index});
}

TEST_F(IndexShardTest, APinnedEntryIsParkedUntilItIsUnpinned) {
  const EntryId entry = Put(1, At(0));
  const ObjectKey key = Key(1);
  ASSERT_EQ(shard_.Pin(Hashed(key)), entry.index);
  EXPECT_EQ(shard_.PeekColdest(-1, At(1'000'000)), kNoOrderKey);
  EXPECT_EQ(shard_.HeldInTheWay().pinned, 1);
  EXPECT_FALSE(shard_.Unpin(entry.index).has_value());
  EXPECT_EQ(DrainAll(At(1'000'000)), std::vector<EntryIndex>{entry.index});
}

TEST_F(IndexShardTest, AParentIsNoVictimAndInheritsTheLaterRank) {
  const EntryId parent = Put(1, At(0));
  const EntryId other = Put(2, At(1000));
  const EntryId child = Put(3, At(2000));
  const ObjectKey parent_key = Key(1);
  EXPECT_EQ(shard_.Attach(Hashed(parent_key), child).depth, 1u);
  EXPECT_EQ(shard_.counters().parents, 1);
  std::vector<Doomed> victims;
  shard_.TakeColdest(-1, kNoOrderKey - 1, 1, INT64_MAX, At(3000), victims);
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_EQ(victims[0].entry.index, other.index);
  EXPECT_NE(shard_.Uncount(parent.index, child.index, 1000), kNoOrderKey);
  EXPECT_EQ(arena_[parent.index].rank, 1000);
  EXPECT_EQ(shard_.Uncount(parent.index, child.index, 2000), kNoOrderKey) << "twice is once";
}

TEST_F(IndexShardTest, AKilledParentNamesItsChildrenOnce) {
  const EntryId parent = Put(1, At(0));
  const EntryId first = Put(2, At(0));
  const EntryId second = Put(3, At(0));
  const ObjectKey parent_key = Key(1);
  shard_.Attach(Hashed(parent_key), first);
  shard_.Attach(Hashed(parent_key), second);
  const auto doomed = shard_.Kill(parent, IndexShard::Death::kRemoved);
  ASSERT_TRUE(doomed.has_value());
  EXPECT_EQ(doomed->children, (std::vector<EntryId>{second, first}));
  EXPECT_FALSE(shard_.Kill(parent, IndexShard::Death::kRemoved).has_value());
  EXPECT_EQ(shard_.Uncount(parent.index, first.index, 0), kNoOrderKey);
}

TEST_F(IndexShardTest, AnEntryIsReusedUnderANewGeneration) {
  const EntryId old = Put(1, At(0));
  DrainAll(At(0));
  const EntryId fresh = Put(1, At(0));
  EXPECT_EQ(fresh.index, old.index);
  EXPECT_NE(fresh.generation, old.generation);
  EXPECT_FALSE(shard_.Kill(old, IndexShard::Death::kRemoved).has_value());
}

TEST_F(IndexShardTest, AFullShardSaysSo) {
  for (uint64_t number = 0; number < kEntries; ++number) Put(number, At(0));
  const ObjectKey key = Key(1000);
  EXPECT_EQ(shard_.Reserve(Hashed(key), 100, ObjectKind::kFull).answer, PutAnswer::kRefusedIndex);
}

}  // namespace
}  // namespace tenure::store
