// What the two-step calls of the embedded pool hand out: room for an object being written, and an object being read.
//
// Move-only; the pool outlives them. Used by one thread at a time; different ones may be used in parallel. They end by
// their owner alone, never by a timer, since a stopped owner may still write (design §4, the daemon).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tenure/base/units.h"
#include "tenure/store/lease.h"

namespace tenure::store {

class EmbeddedPool;

// A slot of the pool's memory. `address` is null in a pool without bytes; `offset` counts from the start of the pool's
// memory.
struct SlotMemory {
  std::byte* address = nullptr;
  int64_t offset = 0;
  Bytes size;
};

// Room for one object, to be filled and committed. Destroyed uncommitted it is abandoned: its key is a miss, its room
// is free again.
class Reservation {
 public:
  Reservation() = default;  // Holds nothing.
  Reservation(EmbeddedPool* pool, EntryRef entry, SlotMemory memory) : pool_(pool), entry_(entry), memory_(memory) {}
  Reservation(Reservation&& other) noexcept { Swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~Reservation() { Abandon(); }

  bool valid() const { return pool_ != nullptr; }
  const SlotMemory& memory() const { return memory_; }
  void Abandon();  // Idempotent.

 private:
  friend class EmbeddedPool;
  void Swap(Reservation& other) {
    std::swap(pool_, other.pool_);
    std::swap(entry_, other.entry_);
    std::swap(memory_, other.memory_);
  }

  EmbeddedPool* pool_ = nullptr;
  EntryRef entry_;
  SlotMemory memory_;
};

// One object that stays where it is until unpinned, whatever happens to its key.
class PinnedObject {
 public:
  PinnedObject() = default;  // Holds nothing: the key was absent.
  PinnedObject(EmbeddedPool* pool, EntryRef entry, SlotMemory memory, uint64_t digest)
      : pool_(pool), entry_(entry), memory_(memory), digest_(digest) {}
  PinnedObject(PinnedObject&& other) noexcept { Swap(other); }
  PinnedObject& operator=(PinnedObject&& other) noexcept {
    PinnedObject moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~PinnedObject() { Unpin(); }

  bool valid() const { return pool_ != nullptr; }
  const SlotMemory& memory() const { return memory_; }
  uint64_t digest() const { return digest_; }  // As it was committed.
  void Unpin();                                // Idempotent.

 private:
  friend class EmbeddedPool;
  void Swap(PinnedObject& other) {
    std::swap(pool_, other.pool_);
    std::swap(entry_, other.entry_);
    std::swap(memory_, other.memory_);
    std::swap(digest_, other.digest_);
  }

  EmbeddedPool* pool_ = nullptr;
  EntryRef entry_;
  SlotMemory memory_;
  uint64_t digest_ = 0;
};

}  // namespace tenure::store
