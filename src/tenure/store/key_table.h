// The hash table of one shard: from 32 bits of a key's hash to candidate entries, by open addressing.
//
// A slot holds those 32 bits and an entry; the table never looks at entries, so that growing and removing touch nothing
// else. The caller compares keys. Linear probing at a load of at most 3/4: eight slots a cache line. One thread at a
// time.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "tenure/store/index_entry.h"
#include "tenure/store/memory_region.h"

namespace tenure::store {

class KeyTable {
 public:
  // Slots that hold `entries_max` without growing.
  static uint64_t SlotsFor(int64_t entries_max);
  struct Slot {
    uint32_t tag;
    EntryIndex entry;
  };
  // Lives in these slots (SlotsFor of them, which outlive it) and never grows.
  void InitFixed(std::span<Slot> slots);
  // Takes memory of its own, by doubling.
  absl::Status InitGrowing();

  void Prefetch(uint32_t tag) const { __builtin_prefetch(&slots_[Home(tag)]); }
  // The first entry with this tag, or kNoEntry: good enough for a prefetch.
  EntryIndex FirstCandidate(uint32_t tag) const {
    return Find(tag, [](EntryIndex) { return true; });
  }
  // The entry with this tag for which `matches(entry)`, or kNoEntry.
  template <typename Matches>
  EntryIndex Find(uint32_t tag, Matches matches) const {
    for (uint64_t at = Home(tag);; at = Next(at)) {
      const Slot slot = slots_[at];
      if (slot.entry == kNoEntry) return kNoEntry;
      if (slot.tag == tag && matches(slot.entry)) return slot.entry;
    }
  }
  // Preconditions: a fixed table has fewer than entries_max; the entry is not there.
  void Insert(uint32_t tag, EntryIndex entry);
  // Precondition: it is there.
  void Remove(uint32_t tag, EntryIndex entry);

  int64_t size() const { return size_; }
  size_t bytes() const { return capacity_ * sizeof(Slot); }

 private:
  uint64_t Home(uint32_t tag) const { return (tag * capacity_) >> 32; }
  // Steps forward from one slot to another.
  uint64_t Distance(uint64_t from, uint64_t to) const { return to >= from ? to - from : to + capacity_ - from; }
  uint64_t Next(uint64_t at) const { return at + 1 == capacity_ ? 0 : at + 1; }
  absl::Status Rebuild(uint64_t capacity);

  MemoryRegion region_;  // Empty when fixed.
  Slot* slots_ = nullptr;
  uint64_t capacity_ = 0;  // In slots; any number, since places are scaled, not masked.
  int64_t size_ = 0;
};

}  // namespace tenure::store
