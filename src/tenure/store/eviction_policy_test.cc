#include "tenure/store/eviction_policy.h"

#include <gtest/gtest.h>

namespace tenure::store {
namespace {

MonotonicTime At(int64_t seconds) { return MonotonicTime() + absl::Seconds(seconds); }

EvictionView View(MonotonicTime written, MonotonicTime leased, MonotonicTime lease_deadline) {
  EvictionView view;
  view.written = written;
  view.leased = leased;
  view.lease_deadline = lease_deadline;
  return view;
}

TEST(LruPolicy, RanksByLastLeaseOrElseByWriting) {
  const auto policy = MakeLruPolicy();
  EXPECT_EQ(policy->Rank(View(At(5), MonotonicTime::Min(), MonotonicTime::Min()), At(5)), At(5));
  EXPECT_EQ(policy->Rank(View(At(5), At(8), At(18)), At(8)), At(8));
}

TEST(MooncakePolicy, AReadCountsAsItsTtlYoungerThanAWrite) {
  const auto policy = MakeMooncakePolicy();
  const MonotonicTime read = policy->Rank(View(At(0), At(1), At(11)), At(1));
  const MonotonicTime written_later = policy->Rank(View(At(10), MonotonicTime::Min(), MonotonicTime::Min()), At(10));
  EXPECT_GT(read, written_later);
}

}  // namespace
}  // namespace tenure::store
