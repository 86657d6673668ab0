// What is special to the embedded pool; the contract itself is tested by tests/conformance.
#include "tenure/store/embedded_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tenure/store/copy_digest.h"
#include "tenure/store/embedded_pool_testing.h"

namespace tenure::store {
namespace {

TEST_F(EmbeddedPoolTest, BadOptionsAreNamed) {
  const auto message = [this](auto change) {
    EmbeddedPoolOptions options = Options(4);
    change(options);
    const auto pool = EmbeddedPool::Create(options, clock_);
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(pool.status().message());
  };
  using O = EmbeddedPoolOptions;
  EXPECT_NE(message([](O& o) { o.capacity = Bytes(kSlab - 1); }).find("capacity is 65535"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.slab_bytes = Bytes(0); }).find("slab_bytes is 0"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.shards = 3; }).find("shards is 3"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.objects_max = -1; }).find("objects_max is -1"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.low_watermark = 0.99; }).find("low_watermark is 0.99"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.high_watermark = 1.5; }).find("high_watermark is 1.5"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.waiting_ttl = absl::ZeroDuration(); }).find("waiting_ttl is 0"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.object_sizes_max = 0; }).find("object_sizes_max is 0"), std::string::npos);
}

TEST_F(EmbeddedPoolTest, AWaitingPutBecomesVisibleWithItsParent) {
  Make(Options(10));
  EXPECT_EQ(Put(2, 1), PutAnswer::kWaiting);
  EXPECT_EQ(Put(1, 0), PutAnswer::kWaiting);
  EXPECT_EQ(Put(3, 2), PutAnswer::kWaiting);
  EXPECT_EQ(CountPresent(0, 4), 0);
  EXPECT_EQ(pool_->Stats().held.waiting, 3);
  EXPECT_EQ(Put(2, 1), PutAnswer::kWaiting) << "again";
  EXPECT_EQ(Put(0), PutAnswer::kStored);
  EXPECT_EQ(CountPresent(0, 4), 4);
  EXPECT_EQ(pool_->Stats().held.waiting, 0);
  EXPECT_EQ(pool_->Stats().held.parents, 3);
  EXPECT_TRUE(Remove(0));
  EXPECT_EQ(CountPresent(0, 4), 0);
  EXPECT_EQ(pool_->Stats().used, Bytes(0));
}

TEST_F(EmbeddedPoolTest, APutWhoseParentIsBeingWrittenWaitsForTheCommit) {
  Make(Options(10));
  PutAnswer answer = PutAnswer::kNotStored;
  Reservation parent = Reserve(0, answer);
  Reservation child = Reserve(1, answer, 0);
  EXPECT_EQ(answer, PutAnswer::kWaiting);
  EXPECT_TRUE(child.valid());
  EXPECT_EQ(pool_->Commit(std::move(parent), 0), PutAnswer::kStored);
  EXPECT_EQ(pool_->Commit(std::move(child), 0), PutAnswer::kStored) << "its parent came while it was written";
  EXPECT_TRUE(Present(1));
}

TEST_F(EmbeddedPoolTest, WaitingPutsAreBoundedAndRunOut) {
  Make(Options(25));  // 2 % are 8 objects.
  for (uint64_t number = 1; number <= 8; ++number) EXPECT_EQ(Put(number, 500 + number), PutAnswer::kWaiting);
  EXPECT_EQ(Put(9, 500), PutAnswer::kRefusedWaiting);
  EXPECT_EQ(pool_->Stats().refused_waiting_total, 1);
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(Put(9, 500), PutAnswer::kWaiting) << "the time of the others is up";
  EXPECT_EQ(pool_->Stats().evicted_waiting_total, 8);
  EXPECT_EQ(pool_->Stats().used, Bytes(kSmall));
  clock_.Advance(absl::Seconds(10));
  pool_->Maintain();
  EXPECT_EQ(pool_->Stats().used, Bytes(0));
  EXPECT_EQ(Put(501), PutAnswer::kStored);
  EXPECT_FALSE(Present(1)) << "its parent came too late";
}

TEST_F(EmbeddedPoolTest, WaitingPutsLeaveFirstAndNeverEvict) {
  EmbeddedPoolOptions options = Options(4);
  options.waiting_share_max = 0.5;
  Make(options);
  for (uint64_t number = 100; number < 163; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  EXPECT_EQ(Put(1, 50), PutAnswer::kWaiting);
  EXPECT_EQ(Put(2, 50), PutAnswer::kRefusedFull);
  EXPECT_EQ(pool_->Stats().evicted_total, 0);
  EXPECT_EQ(Put(200), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().evicted_waiting_total, 1);
  EXPECT_EQ(CountPresent(100, 163), 63);
}

TEST_F(EmbeddedPoolTest, RemovalTakesDescendantsEvenLeasedAndOpenOnes) {
  Make(Options(10));
  for (uint64_t number = 0; number < 5; ++number) {
    ASSERT_EQ(Put(number, number == 0 ? std::nullopt : std::optional(number - 1)), PutAnswer::kStored);
  }
  ASSERT_EQ(Put(50, 1), PutAnswer::kStored);
  const Lease lease = LeaseOf(4);
  PutAnswer answer = PutAnswer::kNotStored;
  Reservation open = Reserve(5, answer, 4);
  EXPECT_TRUE(Remove(1));
  EXPECT_TRUE(Present(0));
  EXPECT_EQ(CountPresent(1, 6), 0);
  EXPECT_FALSE(Present(50));
  EXPECT_EQ(pool_->Stats().removed_total, 5);
  EXPECT_EQ(pool_->Stats().used, Bytes(2 * kSmall)) << "the open put still writes into its slot";
  EXPECT_EQ(pool_->Commit(std::move(open), 0), PutAnswer::kNotStored);
  EXPECT_FALSE(Present(5));
  EXPECT_EQ(pool_->Stats().used, Bytes(kSmall));
  EXPECT_EQ(Put(1, 0), PutAnswer::kStored) << "a new object";
}

TEST_F(EmbeddedPoolTest, AnOldLeaseDoesNotTouchTheNewObjectOfItsKey) {
  Make(Options(10));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  Lease old_lease = LeaseOf(0);
  EXPECT_TRUE(Remove(0));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  const Lease new_lease = LeaseOf(0);
  old_lease.Release();
  EXPECT_EQ(pool_->Stats().held.leased, 1);
}

TEST_F(EmbeddedPoolTest, ReaderOfABadObjectTakesNoLaterOneAway) {
  Make(Options(10));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  const std::array<ObjectKey, 1> keys = {Key(0)};
  std::array<KeyAnswer, 1> answers{};
  const std::vector<PinnedObject> first = pool_->Pin(keys, answers).value();
  const std::vector<PinnedObject> second = pool_->Pin(keys, answers).value();
  pool_->RemoveCorrupt(first[0]);
  EXPECT_FALSE(Present(0));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  pool_->RemoveCorrupt(second[0]);
  EXPECT_TRUE(Present(0));
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 2);
}

TEST_F(EmbeddedPoolTest, ARemovedObjectKeepsItsSlotUntilTheLastPinEnds) {
  Make(Options(10));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  const std::array<ObjectKey, 2> keys = {Key(0), Key(1)};
  std::array<KeyAnswer, 2> answers{};
  auto pins = pool_->Pin(keys, answers);
  EXPECT_EQ(answers[0], KeyAnswer::kPresent);
  EXPECT_EQ(answers[1], KeyAnswer::kAbsent);
  EXPECT_FALSE((*pins)[1].valid());
  EXPECT_TRUE(Remove(0));
  EXPECT_FALSE(Present(0));
  EXPECT_EQ(pool_->Stats().used, Bytes(kSmall));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().used, Bytes(2 * kSmall));
  pins->clear();
  EXPECT_EQ(pool_->Stats().used, Bytes(kSmall));
}

TEST_F(EmbeddedPoolTest, AnAbandonedReservationReturnsItsRoom) {
  Make(Options(10));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  PutAnswer answer = PutAnswer::kNotStored;
  {
    const Reservation open = Reserve(1, answer, 0);
    EXPECT_EQ(open.memory().size, Bytes(kSmall));
    EXPECT_EQ(Put(1, 0), PutAnswer::kBusy);
    const Reservation waiting = Reserve(3, answer, 2);
    EXPECT_EQ(pool_->Stats().used, Bytes(3 * kSmall));
  }
  EXPECT_EQ(pool_->Stats().used, Bytes(kSmall));
  EXPECT_EQ(pool_->Stats().held.parents, 0);
  EXPECT_EQ(pool_->Stats().held.writing, 0);
  EXPECT_EQ(Put(1, 0), PutAnswer::kStored);
}

TEST_F(EmbeddedPoolTest, BytesThatDoNotVerifyAreAMissAndGone) {
  EmbeddedPoolOptions options = Options(2);
  options.memory = MemoryKind::kMapped;
  Make(options);
  PutAnswer answer = PutAnswer::kNotStored;
  Reservation open = Reserve(0, answer);
  ASSERT_NE(open.memory().address, nullptr);
  std::memset(open.memory().address, 7, kSmall);
  const uint64_t digest = Digest(pool_->DigestSeedOf(Key(0)), {open.memory().address, static_cast<size_t>(kSmall)});
  std::byte* stored = open.memory().address;
  ASSERT_EQ(pool_->Commit(std::move(open), digest), PutAnswer::kStored);
  std::vector<std::byte> out(kSmall);
  const Segment segment{out.data(), out.size()};
  const GetObject get{Key(0), {&segment, 1}};
  KeyAnswer got = KeyAnswer::kAbsent;
  ASSERT_TRUE(pool_->Get({&get, 1}, {&got, 1}).ok());
  EXPECT_EQ(got, KeyAnswer::kPresent);
  EXPECT_EQ(out, std::vector<std::byte>(kSmall, std::byte{7}));
  stored[100] = std::byte{8};
  ASSERT_TRUE(pool_->Get({&get, 1}, {&got, 1}).ok());
  EXPECT_EQ(got, KeyAnswer::kAbsent);
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 1);
  EXPECT_FALSE(Present(0));
  EXPECT_EQ(pool_->Stats().used, Bytes(0));
}

TEST_F(EmbeddedPoolTest, AFullIndexEvictsAndRefusesOnlyWhenAllIsHeld) {
  EmbeddedPoolOptions options = Options(10, PoolMode::kIndependent);
  options.objects_max = 8;
  Make(options);
  for (uint64_t number = 0; number < 8; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Put(8), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().objects, 8);
  std::vector<Lease> leases;
  for (uint64_t number = 0; number < 9; ++number) leases.push_back(LeaseOf(number));
  EXPECT_EQ(Put(9), PutAnswer::kRefusedIndex);
  EXPECT_EQ(pool_->Stats().refused_index_total, 1);
  EXPECT_EQ(pool_->Stats().used, Bytes(8 * kSmall));
}

TEST_F(EmbeddedPoolTest, AGrowingIndexHoldsAsManyAsAFixedOne) {
  EmbeddedPoolOptions options = Options(1000, PoolMode::kIndependent);
  options.objects_max = 20'000;
  options.index_grows = true;
  Make(options);
  const Bytes start = pool_->Stats().index_bytes;
  for (uint64_t number = 0; number < 15'000; ++number) ASSERT_EQ(Put(number), PutAnswer::kStored);
  EXPECT_EQ(CountPresent(0, 15'000), 15'000);
  EXPECT_GT(pool_->Stats().index_bytes, start);
}

TEST_F(EmbeddedPoolTest, IndexMemoryStaysBelow160BytesAnObject) {
  EmbeddedPoolOptions options = Options(20'000);
  options.objects_max = 300'000;
  options.shards = 64;
  Make(options);
  for (uint64_t number = 0; number < 300'000; ++number) {
    ASSERT_EQ(Put(number, number % 16 == 0 ? std::nullopt : std::optional(number - 1)), PutAnswer::kStored);
  }
  EXPECT_LE(pool_->Stats().index_bytes.value(), 160 * 300'000);
}

TEST_F(EmbeddedPoolTest, AnObjectLargerThanASlabIsRefused) {
  Make(Options(2));
  EXPECT_EQ(Put(0, std::nullopt, kSlab + 1), PutAnswer::kRefusedSize);
  EXPECT_EQ(Put(0, std::nullopt, kSlab), PutAnswer::kStored);
  EXPECT_EQ(pool_->Stats().refused_size_total, 1);
}

TEST_F(EmbeddedPoolTest, ClearingANamespaceTakesItsObjectsAndTheirDescendants) {
  Make(Options(10));
  ASSERT_EQ(Put(0), PutAnswer::kStored);
  const NamespaceId first = name_space_;
  const ObjectKey root = Key(0);
  name_space_ = pool_->OpenNamespace("other").value();
  const ConstSegment segment{nullptr, kSmall};
  const PutObject window{Key(1), {&segment, 1}, root, ObjectKind::kWindow};
  PutAnswer answer = PutAnswer::kNotStored;
  ASSERT_TRUE(pool_->Put({&window, 1}, {&answer, 1}).ok());
  ASSERT_EQ(Put(2), PutAnswer::kStored);
  EXPECT_EQ(pool_->Clear(first).value(), 1) << "of that namespace";
  EXPECT_FALSE(Present(1)) << "its parent went";
  EXPECT_TRUE(Present(2));
  EXPECT_EQ(pool_->Clear(std::nullopt).value(), 1);
  EXPECT_EQ(pool_->Stats().used, Bytes(0));
}

}  // namespace
}  // namespace tenure::store
