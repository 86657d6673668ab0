// The shards, the slabs and what happens between them: the embedded pool below its checks and its copies.
//
// Every step locks one shard, or the slabs, and none while it holds another; entries that a call still works on are
// pinned. Arguments are valid (EmbeddedPool has checked them). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/store/embedded_pool.h"
#include "tenure/store/index_shard.h"
#include "tenure/store/slab_memory.h"

namespace tenure::store {

class PoolEngine {
 public:
  static absl::StatusOr<std::unique_ptr<PoolEngine>> Create(const EmbeddedPoolOptions& options, MonotonicTime now);

  void Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers);
  // Adds what was leased to `leased`.
  void Lease(std::span<const ObjectKey> keys, MonotonicTime now, MonotonicTime deadline, std::span<KeyAnswer> answers,
             std::vector<EntryRef>& leased);
  void Release(std::span<const EntryRef> entries, MonotonicTime now);

  struct PutRequest {
    const ObjectKey* key;
    Bytes size;
    ObjectKind kind;
    const ObjectKey* parent;  // Null for none.
  };
  struct Reserved {
    PutAnswer answer;  // kStored or kWaiting: the entry is reserved.
    EntryRef entry;
    SlotMemory memory;
  };
  Reserved Reserve(const PutRequest& request, MonotonicTime now);
  PutAnswer Commit(EntryRef entry, uint64_t digest, MonotonicTime now);
  void Abandon(EntryRef entry);

  struct Pinned {
    EntryIndex entry = kNoEntry;  // kNoEntry: absent.
    uint32_t generation = 0;
    SlotMemory memory;
    uint64_t digest = 0;
  };
  Pinned Pin(const ObjectKey& key);
  void Unpin(EntryIndex entry);

  bool Remove(const ObjectKey& key);
  // A failed digest: this very object, whatever lies under its key by now.
  void RemoveEntry(EntryId entry);
  int64_t Clear(std::optional<NamespaceId> name_space);
  bool Maintain(MonotonicTime now);

  // All figures but those of the shell: namespaces, checksums.
  PoolStats Stats(MonotonicTime now) const;
  uint32_t ShardOf(EntryIndex entry) const { return entry >> entry_shift_; }

 private:
  struct alignas(64) Shard {
    mutable Mutex mutex;
    std::unique_ptr<IndexShard> core;  // The pointer is fixed; the core is guarded by the mutex.
  };
  // A put that looks for room: the first slot of its size that a victim leaves goes to it, not to another put.
  struct RoomSeeker {
    Bytes size;
    EntryIndex owner;
    std::optional<Slot> slot;
  };
  struct StepLimits {
    int size_class = -1;  // Below 0: any.
    int64_t objects_max = 1;
    int64_t bytes_goal = INT64_MAX;  // Enough when so many have gone.
    OrderKey last = kNoOrderKey - 1;
  };
  // Why the last look for a slab to recut failed, so that the next one waits until something has changed.
  struct RecutMemo {
    int64_t evictions_to_skip = 0;
    int64_t changes_seen = -1;
    int64_t retry_at = 0;  // Nanoseconds.
  };

  PoolEngine(const EmbeddedPoolOptions& options, MonotonicTime now, EntryArena arena, std::unique_ptr<SlabMemory> slabs,
             int entry_shift);

  Shard& ShardOfHash(uint64_t hash) { return shards_[shard_shift_ == 64 ? 0 : hash >> shard_shift_]; }
  Shard& ShardOfEntry(EntryIndex entry) { return shards_[ShardOf(entry)]; }
  EntryRef RefOf(EntryId id) const { return {ShardOf(id.index), id.index, id.generation}; }
  template <typename Visit>
  void ForEachShard(std::span<const ObjectKey> keys, Visit visit);
  SlotMemory MemoryOf(const Slot& slot, Bytes size) const;

  // Putting.
  IndexShard::Reserved ReserveEntry(HashedKey key, const PutRequest& request, MonotonicTime now);
  bool TakeWaitingShare(Bytes size, MonotonicTime now);
  Reserved Refuse(PutAnswer answer);
  void Undo(EntryId id, const IndexShard::Placement& placement);
  void Wake(std::vector<WaitingChild> woken, MonotonicTime now);
  std::vector<WaitingChild> Adopt(EntryId child, const IndexShard::Attached& attached, MonotonicTime now);

  // Dying.
  OrderKey Finish(const Doomed& doomed, RoomSeeker* seeker);
  int64_t KillTree(std::vector<EntryId> roots, std::optional<NamespaceId> counted);
  int64_t DropWaiting(MonotonicTime until, int64_t max);

  // Room.
  std::optional<Slot> FindRoom(Bytes size, EntryIndex owner, MonotonicTime now);
  int64_t EvictColdest(const StepLimits& limits, MonotonicTime now, RoomSeeker* seeker);
  void StartPassIfAbove(MonotonicTime now);
  bool EvictFromShard(Shard& shard, MonotonicTime now);
  bool PassStep(MonotonicTime now, RoomSeeker* seeker);
  void CountRefusal();

  // Recutting (pool_engine_recut.cc).
  struct Judgement;
  std::optional<Slot> TryRecut(Bytes size, EntryIndex owner, MonotonicTime now);
  std::optional<Slot> RecutColdest(Bytes size, EntryIndex owner, OrderKey own_coldest, MonotonicTime now,
                                   int64_t& retry_at);
  Judgement Judge(uint32_t slab, int64_t own_tick, MonotonicTime now);
  bool CollectTree(const SlabMemory::Content& content, MonotonicTime now, Judgement& judgement,
                   std::vector<IndexShard::Inspection>& nodes);
  std::optional<Slot> Drain(const Judgement& judgement, Bytes size, EntryIndex owner, MonotonicTime now);
  OrderKey PeekColdest(int size_class, MonotonicTime now);
  int64_t NextParkedDeadline();

  const EmbeddedPoolOptions options_;
  const TickScale ticks_;
  const std::shared_ptr<const EvictionPolicy> policy_;
  const int shard_shift_;  // A hash shifted right by it is a shard.
  const int entry_shift_;  // An entry shifted right by it is a shard.
  EntryArena arena_;
  MemoryRegion tables_;  // Of all shards in one piece, so that huge pages serve them; unused when the index grows.
  std::unique_ptr<SlabMemory> slabs_;
  std::vector<Shard> shards_;

  std::atomic<int64_t> entries_{0};
  std::atomic<int64_t> waiting_bytes_{0};
  std::atomic<int64_t> changes_{0};  // Releases, commits, deaths and ends of pins: whatever may make room.
  std::atomic<bool> pass_pending_{false};
  std::atomic<int32_t> pass_start_tick_{0};
  std::atomic<int64_t> passes_total_{0};
  std::atomic<int64_t> refused_full_{0};
  std::atomic<int64_t> refused_index_{0};
  std::atomic<int64_t> refused_waiting_{0};
  std::atomic<int64_t> refused_size_{0};

  mutable Mutex memo_mutex_;
  HeldCounts refused_by_ ABSL_GUARDED_BY(memo_mutex_);
  std::map<int64_t, RecutMemo> recut_memos_ ABSL_GUARDED_BY(memo_mutex_);  // By object size.
};

}  // namespace tenure::store
