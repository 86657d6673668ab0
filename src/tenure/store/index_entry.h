// One object of the embedded pool's index, and the memory that holds all of them.
//
// Entries of every shard lie in one region at places that never move; a shard owns a range of it. All fields of an
// entry belong to its own shard's lock, but for the two sibling links: those belong to the lock of the shard that holds
// the parent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/statusor.h"
#include "tenure/kv/object_key.h"
#include "tenure/store/memory_region.h"
#include "tenure/store/pool.h"

namespace tenure::store {

// The place of an entry in the region.
using EntryIndex = uint32_t;
inline constexpr EntryIndex kNoEntry = UINT32_MAX;
inline constexpr EntryIndex kDetached = UINT32_MAX - 1;  // In prev_sibling: in no parent's list.
inline constexpr uint32_t kNoSlab = UINT32_MAX;          // It has no memory yet.
inline constexpr int64_t kEntriesMax = int64_t{1} << 30;

enum class EntryState : uint8_t {
  kFree,
  kWriting,  // Reserved; its writer holds a pin.
  kWaiting,  // Complete, but its parent is not there.
  kVisible,
  kDead,  // Out of the table; goes when the last pin ends.
};

// In which of the shard's orders an entry stands.
enum class Listing : uint8_t {
  kNone,
  kCandidate,  // May be a victim.
  kParked,     // Was found leased or pinned; comes back when that ends.
};

struct alignas(64) Entry {
  // First cache line: what probe and lease read.
  std::array<uint8_t, kv::BlockHash::kSizeMax> hash;
  uint32_t name_space;
  uint32_t generation;
  EntryState state;
  Listing listing;
  ObjectKind kind;
  uint8_t hash_size;
  uint32_t holders;  // Leases that were not released; means nothing once the deadline has passed.
  int64_t deadline;  // Nanoseconds; leased before it.
  int32_t rank;      // Rank of the policy in ticks (bucket_order.h).
  uint32_t bucket;   // Where `listing` says.
  // Second cache line.
  EntryIndex prev;
  EntryIndex next;
  uint32_t pins;
  uint32_t size;
  uint32_t slab;
  uint32_t slot;
  uint16_t size_class;
  bool awaits_parent;  // Registered as waiting; its bytes are part of the waiting share.
  uint8_t unused;
  int32_t written_tick;
  uint64_t digest;
  uint32_t depth;
  uint32_t children;  // Entries in the list that starts at first_child.
  EntryIndex first_child;
  EntryIndex parent;
  EntryIndex next_sibling;  // These two under the parent's shard's lock.
  EntryIndex prev_sibling;

  // A block hash of 16 bytes has zeros behind them, as the entry has, so that all 32 are compared without a loop.
  bool Matches(const kv::ObjectKey& key) const {
    return name_space == key.name_space.value() && hash_size == key.hash.size() &&
           std::memcmp(hash.data(), key.hash.bytes().data(), kv::BlockHash::kSizeMax) == 0;
  }
};
static_assert(sizeof(Entry) == 128);

class EntryArena {
 public:
  // Address space for that many; memory comes as entries are used or touched.
  static absl::StatusOr<EntryArena> Create(int64_t entries) {
    auto region = MemoryRegion::Map("the pool's index (objects_max)", static_cast<size_t>(entries) * sizeof(Entry),
                                    MemoryRegion::Touch::kOnUse);
    if (!region.ok()) return region.status();
    return EntryArena(std::move(*region));
  }
  void Touch(EntryIndex first, int64_t count) {
    std::memset(static_cast<void*>(&(*this)[first]), 0, static_cast<size_t>(count) * sizeof(Entry));
  }

  Entry& operator[](EntryIndex index) { return reinterpret_cast<Entry*>(region_.data())[index]; }
  const Entry& operator[](EntryIndex index) const { return reinterpret_cast<const Entry*>(region_.data())[index]; }

 private:
  explicit EntryArena(MemoryRegion region) : region_(std::move(region)) {}

  MemoryRegion region_;
};

}  // namespace tenure::store
