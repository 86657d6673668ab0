#include "tenure/store/key_table.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::store {
namespace {

constexpr uint64_t kGrowingStart = 64;  // Slots.

bool Overloaded(int64_t entries, uint64_t capacity) { return static_cast<uint64_t>(entries) * 4 > capacity * 3; }

}  // namespace

// One slot more than the load needs, so that a search always meets an empty one.
uint64_t KeyTable::SlotsFor(int64_t entries_max) { return static_cast<uint64_t>(entries_max) * 4 / 3 + 2; }

void KeyTable::InitFixed(std::span<Slot> slots) {
  slots_ = slots.data();
  capacity_ = slots.size();
  std::fill_n(slots_, capacity_, Slot{0, kNoEntry});
}

absl::Status KeyTable::InitGrowing() { return Rebuild(kGrowingStart); }

absl::Status KeyTable::Rebuild(uint64_t capacity) {
  auto region = MemoryRegion::Map("the pool's hash tables", capacity * sizeof(Slot), MemoryRegion::Touch::kOnUse);
  if (!region.ok()) return region.status();
  const MemoryRegion old_region = std::exchange(region_, std::move(*region));
  const Slot* old_slots = std::exchange(slots_, reinterpret_cast<Slot*>(region_.data()));
  const uint64_t old_capacity = std::exchange(capacity_, capacity);
  std::fill_n(slots_, capacity, Slot{0, kNoEntry});
  size_ = 0;
  for (uint64_t at = 0; at < old_capacity; ++at) {
    if (old_slots[at].entry != kNoEntry) Insert(old_slots[at].tag, old_slots[at].entry);
  }
  return absl::OkStatus();
}

void KeyTable::Insert(uint32_t tag, EntryIndex entry) {
  if (Overloaded(size_ + 1, capacity_)) {
    // Growing is for simulations alone; like any other allocation of theirs it ends the process when there is no
    // memory.
    if (!Rebuild(capacity_ * 2).ok()) throw std::bad_alloc();
  }
  uint64_t at = Home(tag);
  while (slots_[at].entry != kNoEntry) at = Next(at);
  slots_[at] = {tag, entry};
  ++size_;
}

void KeyTable::Remove(uint32_t tag, EntryIndex entry) {
  uint64_t hole = Home(tag);
  while (slots_[hole].entry != entry) {
    TENURE_CHECK(slots_[hole].entry != kNoEntry);
    hole = Next(hole);
  }
  --size_;
  // Close the hole: a later slot moves in when its search would otherwise end there, that is, when its home does not
  // lie behind the hole.
  for (uint64_t at = Next(hole); slots_[at].entry != kNoEntry; at = Next(at)) {
    if (Distance(Home(slots_[at].tag), at) < Distance(hole, at)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole].entry = kNoEntry;
}

}  // namespace tenure::store
