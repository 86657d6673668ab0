// How an object comes into the pool: reserve its entry, tell its parent, find its slot; then publish it, or let it
// wait.
#include <utility>

#include "tenure/store/key_hash.h"
#include "tenure/store/pool_engine.h"

namespace tenure::store {

PoolEngine::Reserved PoolEngine::Reserve(const PutRequest& request, MonotonicTime now) {
  if (request.size > slabs_->slab_bytes()) {
    refused_size_.fetch_add(1, std::memory_order_relaxed);
    return {PutAnswer::kRefusedSize, {}, {}};
  }
  const HashedKey key{request.key, HashOf(*request.key)};
  const IndexShard::Reserved reserved = ReserveEntry(key, request, now);
  if (reserved.answer != PutAnswer::kStored) return {reserved.answer, {}, {}};
  const EntryId id = reserved.entry;

  // From here on the parent cannot leave, not even for this object's own room.
  IndexShard::Placement placement;
  if (request.parent != nullptr) {
    const HashedKey parent{request.parent, HashOf(*request.parent)};
    Shard& shard = ShardOfHash(parent.hash);
    MutexLock lock(shard.mutex);
    const IndexShard::Attached attached = shard.core->Attach(parent, id);
    placement.parent = attached.parent;
    placement.depth = attached.depth;
    if (attached.parent == kNoEntry) placement.awaited = *request.parent;
  }
  const bool waits = placement.awaited.has_value();
  PutAnswer refusal = PutAnswer::kRefusedFull;
  std::optional<Slot> slot;
  if (!waits) {
    slot = FindRoom(request.size, id.index, now);
  } else if (TakeWaitingShare(request.size, now)) {
    slot = slabs_->Allocate(request.size, id.index);
    if (!slot.has_value()) waiting_bytes_.fetch_sub(request.size.value(), std::memory_order_relaxed);
  } else {
    refusal = PutAnswer::kRefusedWaiting;
  }
  placement.slot = slot.value_or(Slot{kNoSlab, 0, 0});
  IndexShard::Placed placed = IndexShard::Placed::kDead;
  {
    Shard& shard = ShardOfEntry(id.index);
    MutexLock lock(shard.mutex);
    placed = shard.core->Place(id.index, placement);
  }
  const bool waiting = placed == IndexShard::Placed::kWaiting;
  if (waits && slot.has_value() && !waiting) waiting_bytes_.fetch_sub(request.size.value(), std::memory_order_relaxed);
  if (!slot.has_value() || placed == IndexShard::Placed::kDead) {
    Undo(id, placement);
    return Refuse(slot.has_value() ? PutAnswer::kNotStored : refusal);
  }
  return {waiting ? PutAnswer::kWaiting : PutAnswer::kStored, RefOf(id), MemoryOf(*slot, request.size)};
}

// The entry of a new object, within objects_max.
IndexShard::Reserved PoolEngine::ReserveEntry(HashedKey key, const PutRequest& request, MonotonicTime now) {
  Shard& shard = ShardOfHash(key.hash);
  const auto reserve = [&] {
    MutexLock lock(shard.mutex);
    return shard.core->Reserve(key, static_cast<uint32_t>(request.size.value()), request.kind);
  };
  IndexShard::Reserved reserved = reserve();
  if (reserved.answer == PutAnswer::kWaiting && DropWaiting(now, INT64_MAX) > 0) reserved = reserve();
  if (reserved.answer == PutAnswer::kRefusedIndex && EvictFromShard(shard, now)) reserved = reserve();
  if (reserved.answer == PutAnswer::kRefusedIndex) refused_index_.fetch_add(1, std::memory_order_relaxed);
  if (reserved.answer != PutAnswer::kStored) return reserved;
  if (entries_.fetch_add(1, std::memory_order_relaxed) < options_.objects_max) return reserved;
  if (EvictColdest({.size_class = -1, .objects_max = 1}, now, nullptr) > 0) return reserved;
  Undo(reserved.entry, {});
  refused_index_.fetch_add(1, std::memory_order_relaxed);
  reserved.answer = PutAnswer::kRefusedIndex;
  return reserved;
}

// Adds the bytes to the waiting share, which never grows past its maximum.
bool PoolEngine::TakeWaitingShare(Bytes size, MonotonicTime now) {
  const int64_t share_max =
      static_cast<int64_t>(options_.waiting_share_max * static_cast<double>(slabs_->capacity().value()));
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (waiting_bytes_.fetch_add(size.value(), std::memory_order_relaxed) + size.value() <= share_max) return true;
    waiting_bytes_.fetch_sub(size.value(), std::memory_order_relaxed);
    if (DropWaiting(now, INT64_MAX) == 0) return false;
  }
  return false;
}

PoolEngine::Reserved PoolEngine::Refuse(PutAnswer answer) {
  if (answer == PutAnswer::kRefusedWaiting) refused_waiting_.fetch_add(1, std::memory_order_relaxed);
  if (answer == PutAnswer::kRefusedFull) {
    refused_full_.fetch_add(1, std::memory_order_relaxed);
    CountRefusal();
  }
  return {answer, {}, {}};
}

// Ends a reservation that did not come to be: its entry may be alive or dead, its parent told or not.
void PoolEngine::Undo(EntryId id, const IndexShard::Placement& placement) {
  Doomed doomed;
  {
    Shard& shard = ShardOfEntry(id.index);
    MutexLock lock(shard.mutex);
    doomed = shard.core->Abandon(id.index);
  }
  if (doomed.parent == kNoEntry) doomed.parent = placement.parent;
  if (placement.awaited.has_value() && !doomed.awaited.has_value()) {
    Shard& shard = ShardOfHash(HashOf(*placement.awaited));
    MutexLock lock(shard.mutex);
    shard.core->Unregister(*placement.awaited, id);
  }
  Finish(doomed, nullptr);
}

void PoolEngine::Abandon(EntryRef entry) { Undo({entry.index, entry.generation}, {}); }

PutAnswer PoolEngine::Commit(EntryRef entry, uint64_t digest, MonotonicTime now) {
  IndexShard::Committed committed;
  {
    Shard& shard = ShardOfEntry(entry.index);
    MutexLock lock(shard.mutex);
    committed = shard.core->Commit(entry.index, digest, now);
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (committed.answer == PutAnswer::kNotStored) Abandon(entry);
  if (!committed.woken.empty()) Wake(std::move(committed.woken), now);
  return committed.answer;
}

// Makes visible what waited for a key that is there now, then what waited for those.
void PoolEngine::Wake(std::vector<WaitingChild> woken, MonotonicTime now) {
  while (!woken.empty()) {
    const WaitingChild next = woken.back();
    woken.pop_back();
    const EntryIndex child = next.child.index;
    Shard& child_shard = ShardOfEntry(child);
    {
      MutexLock lock(child_shard.mutex);
      if (!child_shard.core->PinWaiting(next.child)) continue;
    }
    const HashedKey parent{&next.parent, HashOf(next.parent)};
    IndexShard::Attached attached;
    {
      Shard& shard = ShardOfHash(parent.hash);
      MutexLock lock(shard.mutex);
      attached = shard.core->Attach(parent, next.child);  // If the parent has left already, the child waits on.
    }
    if (attached.parent != kNoEntry) {
      const std::vector<WaitingChild> next_woken = Adopt(next.child, attached, now);
      woken.insert(woken.end(), next_woken.begin(), next_woken.end());
    }
    Unpin(child);
  }
}

std::vector<WaitingChild> PoolEngine::Adopt(EntryId child, const IndexShard::Attached& attached, MonotonicTime now) {
  IndexShard::Adopted adopted;
  {
    Shard& shard = ShardOfEntry(child.index);
    MutexLock lock(shard.mutex);
    adopted = shard.core->Adopt(child.index, attached.parent, attached.depth, now);
  }
  waiting_bytes_.fetch_sub(adopted.waited.value(), std::memory_order_relaxed);
  if (!adopted.alive) {
    Shard& shard = ShardOfEntry(attached.parent);
    MutexLock lock(shard.mutex);
    shard.core->Uncount(attached.parent, child.index, INT32_MIN);
  }
  return std::move(adopted.woken);
}

}  // namespace tenure::store
