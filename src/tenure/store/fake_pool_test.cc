#include <array>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::store {
namespace {

using ::testing::ElementsAre;

ObjectKey Key(uint8_t number) {
  std::array<uint8_t, 16> bytes{};
  bytes[0] = number;
  return {.name_space = NamespaceId(0), .hash = kv::BlockHash::FromTrusted(bytes)};
}

class FakePoolTest : public ::testing::Test {
 protected:
  std::vector<KeyAnswer> Probe(FakePool& pool, std::vector<ObjectKey> keys) {
    std::vector<KeyAnswer> answers(keys.size());
    EXPECT_TRUE(pool.Probe(keys, answers).ok());
    return answers;
  }
  Lease Acquire(FakePool& pool, std::vector<ObjectKey> keys, absl::Duration ttl) {
    std::vector<KeyAnswer> answers(keys.size());
    return pool.AcquireLease(keys, ttl, answers).value();
  }

  ManualClock clock_;
};

TEST_F(FakePoolTest, HookEvictsBeforeTheCallLooks) {
  FakePool pool(clock_, /*closed=*/false);
  pool.Insert(Key(1));
  pool.set_before_call([&pool](FakePool::Call, std::span<const ObjectKey> keys) {
    pool.Evict(keys[0]);
    return absl::OkStatus();
  });
  EXPECT_THAT(Probe(pool, {Key(1)}), ElementsAre(KeyAnswer::kAbsent));
}

TEST_F(FakePoolTest, HookFailsACallAndAKeyIsUnavailable) {
  FakePool pool(clock_, /*closed=*/false);
  pool.Insert(Key(1));
  pool.set_unavailable([](const ObjectKey& key) { return key == Key(1); });
  EXPECT_THAT(Probe(pool, {Key(1), Key(2)}), ElementsAre(KeyAnswer::kUnavailable, KeyAnswer::kAbsent));
  pool.set_before_call([](FakePool::Call, std::span<const ObjectKey>) { return Unavailable("pool is away"); });
  std::vector<KeyAnswer> answers(1);
  EXPECT_EQ(pool.Probe(std::vector{Key(1)}, answers).code(), absl::StatusCode::kUnavailable);
}

TEST_F(FakePoolTest, LeaseKeepsAncestorsInAClosedPoolUntilReleaseOrDeadline) {
  FakePool pool(clock_, /*closed=*/true);
  pool.Insert(Key(1));
  pool.Insert(Key(2), Key(1));
  Lease lease = Acquire(pool, {Key(2)}, absl::Seconds(1));
  EXPECT_FALSE(pool.Evict(Key(1)));
  lease.Release();
  EXPECT_FALSE(pool.IsHeld(Key(1)));
  Acquire(pool, {Key(2)}, absl::Seconds(1)).Forget();
  EXPECT_TRUE(pool.IsHeld(Key(1)));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(pool.Evict(Key(1)));
  EXPECT_FALSE(pool.Contains(Key(2)));
}

TEST_F(FakePoolTest, RecordsWhatWasAsked) {
  FakePool pool(clock_, /*closed=*/false);
  Probe(pool, {Key(1), Key(1), Key(2)});
  Acquire(pool, {Key(2), Key(3)}, absl::Seconds(1));
  EXPECT_EQ(pool.Calls(FakePool::Call::kProbe), 1);
  EXPECT_EQ(pool.KeysAsked(FakePool::Call::kProbe), 3);
  EXPECT_EQ(pool.DistinctKeysAsked(std::array{FakePool::Call::kProbe, FakePool::Call::kLease}), 3);
}

TEST_F(FakePoolTest, WaitingChildShowsWithItsParent) {
  FakePool pool(clock_, /*closed=*/true);
  const std::array<ConstSegment, 1> segments = {{{.data = nullptr, .size = 8}}};
  const std::vector<PutObject> objects = {{.key = Key(2), .segments = segments, .parent = Key(1)},
                                          {.key = Key(1), .segments = segments, .parent = std::nullopt}};
  std::vector<PutAnswer> answers(2);
  ASSERT_TRUE(pool.Put(objects, answers).ok());
  EXPECT_THAT(answers, ElementsAre(PutAnswer::kWaiting, PutAnswer::kStored));
  EXPECT_THAT(Probe(pool, {Key(1), Key(2)}), ElementsAre(KeyAnswer::kPresent, KeyAnswer::kPresent));
}

}  // namespace
}  // namespace tenure::store
