#include "tenure/store/bucket_order.h"

namespace tenure::store {

uint32_t BucketOrder::BucketFor(OrderKey key) {
  if (last_used_ < buckets_.size() && buckets_[last_used_].key == key) return last_used_;
  const auto [place, is_new] = buckets_by_key_.try_emplace(key, 0);
  if (!is_new) return place->second;
  if (free_buckets_.empty()) {
    place->second = static_cast<uint32_t>(buckets_.size());
    buckets_.push_back({key, kNoEntry, kNoEntry});
  } else {
    place->second = free_buckets_.back();
    free_buckets_.pop_back();
    buckets_[place->second] = {key, kNoEntry, kNoEntry};
  }
  return place->second;
}

void BucketOrder::Append(EntryArena& entries, EntryIndex index, OrderKey key) {
  last_used_ = BucketFor(key);
  Bucket& bucket = buckets_[last_used_];
  Entry& entry = entries[index];
  entry.bucket = last_used_;
  entry.prev = bucket.tail;
  entry.next = kNoEntry;
  if (bucket.tail == kNoEntry) {
    bucket.head = index;
  } else {
    entries[bucket.tail].next = index;
  }
  bucket.tail = index;
  ++size_;
}

void BucketOrder::Remove(EntryArena& entries, EntryIndex index) {
  const Entry& entry = entries[index];
  Bucket& bucket = buckets_[entry.bucket];
  if (entry.prev == kNoEntry) {
    bucket.head = entry.next;
  } else {
    entries[entry.prev].next = entry.next;
  }
  if (entry.next == kNoEntry) {
    bucket.tail = entry.prev;
  } else {
    entries[entry.next].prev = entry.prev;
  }
  --size_;
  if (bucket.head != kNoEntry) return;
  buckets_by_key_.erase(bucket.key);
  bucket.key = kNoOrderKey;
  free_buckets_.push_back(entry.bucket);
}

size_t BucketOrder::bytes() const {
  return buckets_.capacity() * sizeof(Bucket) + free_buckets_.capacity() * sizeof(uint32_t) +
         buckets_by_key_.size() * (sizeof(OrderKey) + sizeof(uint32_t));
}

}  // namespace tenure::store
