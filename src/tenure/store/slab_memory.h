// The pool's memory in slabs, each cut for one exact object size, and who owns each slot.
//
// A slab without objects is uncut and serves any size. A full class gets more room only when another slab is drained:
// the pool marks it (nothing new goes in), removes its objects and ends the drain. Memory may be absent (simulation):
// slots are then counted, not backed. Thread-safe: one lock of its own, never held while calling out; callers hold no
// shard lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/base/units.h"
#include "tenure/store/index_entry.h"
#include "tenure/store/memory_region.h"

namespace tenure::store {

struct Slot {
  uint32_t slab = 0;
  uint32_t slot = 0;
  uint16_t size_class = 0;
};

class SlabMemory {
 public:
  static constexpr uint32_t kSlotsPerSlabMax =
      1u << 20;  // Bounds the map of owners; objects below 64 bytes waste the rest.

  struct Options {
    int64_t slabs = 1;
    Bytes slab_bytes;
    int64_t object_sizes_max = 64;  // Classes that have a slab at one time.
    bool mapped = true;             // All of it touched in Create.
  };
  static absl::StatusOr<std::unique_ptr<SlabMemory>> Create(const Options& options);

  // A free slot of this size, from the class's own slabs, else from an uncut one; nullopt when there is none or when
  // the class would be one too many. Precondition: 1 <= size <= slab_bytes.
  std::optional<Slot> Allocate(Bytes size, EntryIndex owner);
  void Free(const Slot& slot);
  // Hands a slot to another object without freeing it; false when its slab is being drained.
  bool Reassign(const Slot& slot, EntryIndex owner);

  std::optional<uint16_t> ClassOf(Bytes size) const;
  // True when a slab of another class could become one of this size: there is one, and the size has a class or may have
  // one.
  bool MayRecut(Bytes size) const;

  // Draining. Nothing is allocated from a slab between the two calls; BeginDrain is false when it is uncut, being
  // drained, or cut for `size` already.
  bool BeginDrain(uint32_t slab, Bytes size);
  // When the slab is empty it is cut for `size` and one of its slots given out; else it returns to its class.
  std::optional<Slot> EndDrain(uint32_t slab, Bytes size, EntryIndex owner);
  struct Content {
    std::vector<EntryIndex> owners;
    int64_t slots = 0;  // Owned and free.
  };
  Content ContentOf(uint32_t slab) const;

  uint32_t SlotsPerSlab(Bytes size) const;
  int64_t OffsetOf(const Slot& slot, Bytes size) const {
    return slot.slab * slab_bytes_.value() + slot.slot * size.value();
  }
  std::byte* data() const { return region_.data(); }  // Null without memory.
  Bytes capacity() const { return Bytes(static_cast<int64_t>(slabs_.size()) * slab_bytes_.value()); }
  Bytes slab_bytes() const { return slab_bytes_; }
  Bytes used() const { return Bytes(used_bytes_.load(std::memory_order_relaxed)); }
  int64_t recut_total() const { return recut_total_.load(std::memory_order_relaxed); }
  size_t index_bytes() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kFreeBit =
      0x8000'0000u;  // In a cell of the owner map: free, the rest is the next free slot.
  static constexpr uint32_t kFreeEnd = 0x7FFF'FFFFu;

  struct Slab {
    Bytes size;  // 0: uncut.
    uint16_t size_class = 0;
    bool draining = false;
    bool listed = false;  // In its class's list of slabs with free slots, or in the list of uncut slabs.
    uint32_t live = 0;
    uint32_t slots = 0;
    uint32_t free_head = kFreeEnd;
    uint32_t prev = kNone;
    uint32_t next = kNone;
    std::vector<uint32_t> owners;  // As long as slots were ever used: the rest of the slab is fresh.
  };
  struct SizeClass {
    Bytes size;  // 0: unused.
    int64_t slabs = 0;
    uint32_t with_room = kNone;
  };

  SlabMemory(const Options& options, MemoryRegion region);
  std::optional<uint16_t> FindClass(Bytes size) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<uint16_t> FindOrAddClass(Bytes size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cut(uint32_t slab, uint16_t size_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Uncut(uint32_t slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot Take(uint32_t slab, EntryIndex owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Link(uint32_t& head, uint32_t slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlink(uint32_t& head, uint32_t slab) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Bytes slab_bytes_;
  MemoryRegion region_;
  std::atomic<int64_t> used_bytes_{0};
  std::atomic<int64_t> recut_total_{0};
  mutable Mutex mutex_;
  std::vector<Slab> slabs_;  // The vector is fixed; its elements are guarded.
  std::vector<SizeClass> classes_ ABSL_GUARDED_BY(mutex_);
  uint32_t uncut_ ABSL_GUARDED_BY(mutex_) = kNone;
};

}  // namespace tenure::store
