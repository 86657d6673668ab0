#include "tenure/store/slab_memory.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"

namespace tenure::store {

absl::StatusOr<std::unique_ptr<SlabMemory>> SlabMemory::Create(const Options& options) {
  MemoryRegion region;
  if (options.mapped) {
    auto mapped =
        MemoryRegion::Map("the pool (capacity)", static_cast<size_t>(options.slabs * options.slab_bytes.value()),
                          MemoryRegion::Touch::kNow);
    if (!mapped.ok()) return mapped.status();
    region = std::move(*mapped);
  }
  return std::unique_ptr<SlabMemory>(new SlabMemory(options, std::move(region)));
}

SlabMemory::SlabMemory(const Options& options, MemoryRegion region)
    : slab_bytes_(options.slab_bytes),
      region_(std::move(region)),
      slabs_(static_cast<size_t>(options.slabs)),
      classes_(static_cast<size_t>(options.object_sizes_max)) {
  MutexLock lock(mutex_);
  for (uint32_t slab = static_cast<uint32_t>(slabs_.size()); slab-- > 0;) Link(uncut_, slab);
}

std::optional<Slot> SlabMemory::Allocate(Bytes size, EntryIndex owner) {
  MutexLock lock(mutex_);
  if (const auto found = FindClass(size); found.has_value() && classes_[*found].with_room != kNone) {
    return Take(classes_[*found].with_room, owner);
  }
  if (uncut_ == kNone) return std::nullopt;
  const auto size_class = FindOrAddClass(size);
  if (!size_class.has_value()) return std::nullopt;
  const uint32_t slab = uncut_;
  Unlink(uncut_, slab);
  Cut(slab, *size_class);
  return Take(slab, owner);
}

void SlabMemory::Free(const Slot& slot) {
  MutexLock lock(mutex_);
  Slab& slab = slabs_[slot.slab];
  TENURE_CHECK(slot.slot < slab.owners.size() && (slab.owners[slot.slot] & kFreeBit) == 0);
  slab.owners[slot.slot] = kFreeBit | slab.free_head;
  slab.free_head = slot.slot;
  --slab.live;
  used_bytes_.fetch_sub(slab.size.value(), std::memory_order_relaxed);
  if (slab.draining) return;
  if (slab.live == 0) {
    Uncut(slot.slab);
  } else if (!slab.listed) {
    Link(classes_[slab.size_class].with_room, slot.slab);
  }
}

bool SlabMemory::Reassign(const Slot& slot, EntryIndex owner) {
  MutexLock lock(mutex_);
  Slab& slab = slabs_[slot.slab];
  if (slab.draining) return false;
  slab.owners[slot.slot] = owner;
  return true;
}

std::optional<uint16_t> SlabMemory::ClassOf(Bytes size) const {
  MutexLock lock(mutex_);
  return FindClass(size);
}

bool SlabMemory::MayRecut(Bytes size) const {
  MutexLock lock(mutex_);
  if (!FindClass(size).has_value() && !FindClass(Bytes(0)).has_value()) return false;
  return std::any_of(classes_.begin(), classes_.end(),
                     [size](const SizeClass& other) { return other.slabs > 0 && other.size != size; });
}

bool SlabMemory::BeginDrain(uint32_t index, Bytes size) {
  MutexLock lock(mutex_);
  Slab& slab = slabs_[index];
  if (slab.size == Bytes(0) || slab.draining || slab.size == size) return false;
  if (slab.listed) Unlink(classes_[slab.size_class].with_room, index);
  slab.draining = true;
  return true;
}

std::optional<Slot> SlabMemory::EndDrain(uint32_t index, Bytes size, EntryIndex owner) {
  MutexLock lock(mutex_);
  Slab& slab = slabs_[index];
  slab.draining = false;
  if (slab.live > 0) {
    if (slab.live < slab.slots) Link(classes_[slab.size_class].with_room, index);
    return std::nullopt;
  }
  Uncut(index);
  const auto size_class = FindOrAddClass(size);
  if (!size_class.has_value()) return std::nullopt;
  Unlink(uncut_, index);
  Cut(index, *size_class);
  recut_total_.fetch_add(1, std::memory_order_relaxed);
  return Take(index, owner);
}

SlabMemory::Content SlabMemory::ContentOf(uint32_t index) const {
  MutexLock lock(mutex_);
  const Slab& slab = slabs_[index];
  Content content;
  content.slots = slab.slots;
  for (const uint32_t owner : slab.owners) {
    if ((owner & kFreeBit) == 0) content.owners.push_back(owner);
  }
  return content;
}

uint32_t SlabMemory::SlotsPerSlab(Bytes size) const {
  return static_cast<uint32_t>(std::min<int64_t>(slab_bytes_ / size, kSlotsPerSlabMax));
}

size_t SlabMemory::index_bytes() const {
  MutexLock lock(mutex_);
  size_t bytes = slabs_.size() * sizeof(Slab);
  for (const Slab& slab : slabs_) bytes += slab.owners.capacity() * sizeof(uint32_t);
  return bytes;
}

std::optional<uint16_t> SlabMemory::FindClass(Bytes size) const {
  for (size_t index = 0; index < classes_.size(); ++index) {
    if (classes_[index].size == size) return static_cast<uint16_t>(index);
  }
  return std::nullopt;
}

std::optional<uint16_t> SlabMemory::FindOrAddClass(Bytes size) {
  auto found = FindClass(size);
  if (found.has_value()) return found;
  found = FindClass(Bytes(0));
  if (found.has_value()) classes_[*found].size = size;
  return found;
}

void SlabMemory::Cut(uint32_t index, uint16_t size_class) {
  Slab& slab = slabs_[index];
  slab.size = classes_[size_class].size;
  slab.size_class = size_class;
  slab.slots = SlotsPerSlab(slab.size);
  slab.owners.clear();
  slab.free_head = kFreeEnd;
  ++classes_[size_class].slabs;
  Link(classes_[size_class].with_room, index);
}

void SlabMemory::Uncut(uint32_t index) {
  Slab& slab = slabs_[index];
  SizeClass& size_class = classes_[slab.size_class];
  if (slab.listed) Unlink(size_class.with_room, index);
  if (--size_class.slabs == 0) size_class.size = Bytes(0);
  slab.size = Bytes(0);
  Link(uncut_, index);
}

Slot SlabMemory::Take(uint32_t index, EntryIndex owner) {
  Slab& slab = slabs_[index];
  Slot slot{index, slab.free_head, slab.size_class};
  if (slab.free_head == kFreeEnd) {
    slot.slot = static_cast<uint32_t>(slab.owners.size());
    slab.owners.push_back(owner);
  } else {
    slab.free_head = slab.owners[slot.slot] & ~kFreeBit;
    slab.owners[slot.slot] = owner;
  }
  used_bytes_.fetch_add(slab.size.value(), std::memory_order_relaxed);
  if (++slab.live == slab.slots) Unlink(classes_[slab.size_class].with_room, index);
  return slot;
}

void SlabMemory::Link(uint32_t& head, uint32_t index) {
  Slab& slab = slabs_[index];
  slab.listed = true;
  slab.prev = kNone;
  slab.next = head;
  if (head != kNone) slabs_[head].prev = index;
  head = index;
}

void SlabMemory::Unlink(uint32_t& head, uint32_t index) {
  Slab& slab = slabs_[index];
  slab.listed = false;
  if (slab.prev == kNone) {
    head = slab.next;
  } else {
    slabs_[slab.prev].next = slab.next;
  }
  if (slab.next != kNone) slabs_[slab.next].prev = slab.prev;
}

}  // namespace tenure::store
