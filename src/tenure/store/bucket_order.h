// Entries ordered by time in steps of 64 ms, and by depth within a step: the order in which objects may leave.
//
// Equal keys share a bucket, a doubly linked list through the entries (first in, first out); the keys of the buckets
// lie in a B-tree. Adding at the newest key and removing from the middle touch no tree. Part of a shard: one thread at
// a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "tenure/base/clock.h"
#include "tenure/store/index_entry.h"

namespace tenure::store {

// Ticks of 64 ms around an origin, ±4 years; times further off count as the end of that range.
class TickScale {
 public:
  static constexpr int64_t kTickNanoseconds = 64'000'000;

  explicit TickScale(MonotonicTime origin) : origin_(origin.nanoseconds()) {}

  int32_t ToTick(MonotonicTime time) const {
    int64_t offset = 0;
    if (__builtin_sub_overflow(time.nanoseconds(), origin_, &offset))
      return time.nanoseconds() > 0 ? INT32_MAX : INT32_MIN;
    const int64_t tick = offset >= 0 ? offset / kTickNanoseconds : -((-(offset + 1)) / kTickNanoseconds) - 1;
    return static_cast<int32_t>(std::clamp<int64_t>(tick, INT32_MIN, INT32_MAX));
  }
  // The start of the tick; Min() for the lowest one, which stands for "never".
  MonotonicTime ToTime(int32_t tick) const {
    if (tick == INT32_MIN) return MonotonicTime::Min();
    int64_t time = 0;
    if (__builtin_add_overflow(origin_, int64_t{tick} * kTickNanoseconds, &time)) {
      return tick > 0 ? MonotonicTime::Max() : MonotonicTime::Min();
    }
    return MonotonicTime::FromNanoseconds(time);
  }

 private:
  int64_t origin_;
};

// Smaller leaves first: earlier tick, then greater depth.
using OrderKey = uint64_t;
inline constexpr OrderKey kNoOrderKey = UINT64_MAX;
inline OrderKey MakeOrderKey(int32_t tick, uint32_t depth) {
  const uint32_t biased = static_cast<uint32_t>(tick) ^ 0x8000'0000u;
  return (uint64_t{biased} << 32) | (UINT32_MAX - depth - 1);  // Never kNoOrderKey.
}
// No key of this tick is smaller.
inline OrderKey FirstKeyOfTick(int32_t tick) { return MakeOrderKey(tick, UINT32_MAX - 1); }
inline int32_t TickOf(OrderKey key) { return static_cast<int32_t>(static_cast<uint32_t>(key >> 32) ^ 0x8000'0000u); }

class BucketOrder {
 public:
  // Preconditions: `entry` is in no order; its prev, next and bucket are the order's while it is in it.
  void Append(EntryArena& entries, EntryIndex entry, OrderKey key);
  void Remove(EntryArena& entries, EntryIndex entry);

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  // kNoOrderKey and kNoEntry when empty.
  OrderKey FirstKey() const { return buckets_by_key_.empty() ? kNoOrderKey : buckets_by_key_.begin()->first; }
  EntryIndex First() const {
    return buckets_by_key_.empty() ? kNoEntry : buckets_[buckets_by_key_.begin()->second].head;
  }
  OrderKey KeyOf(const Entry& entry) const { return buckets_[entry.bucket].key; }
  size_t bytes() const;

 private:
  struct Bucket {
    OrderKey key;
    EntryIndex head;
    EntryIndex tail;
  };

  uint32_t BucketFor(OrderKey key);

  absl::btree_map<OrderKey, uint32_t> buckets_by_key_;
  std::vector<Bucket> buckets_;
  std::vector<uint32_t> free_buckets_;
  uint32_t last_used_ = 0;  // Bucket that the last Append used; checked by its key.
  int64_t size_ = 0;
};

}  // namespace tenure::store
