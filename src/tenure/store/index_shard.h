// One shard of the embedded pool's index: a single-threaded core without clock, lock or memory of objects.
//
// The pool steps it under the shard's mutex, passes `now`, and carries out what it answers: slots to free, a parent in
// another shard to tell, children to wake. Entries are named by their place in the arena. Anything the pool still has
// to do with a dead or waking entry is covered by a pin, so that an entry is never reused under its hands.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/store/bucket_order.h"
#include "tenure/store/eviction_policy.h"
#include "tenure/store/index_entry.h"
#include "tenure/store/key_table.h"
#include "tenure/store/lease_count.h"
#include "tenure/store/pool.h"
#include "tenure/store/slab_memory.h"
#include "tenure/store/waiting_puts.h"

namespace tenure::store {

// A key with its hash: the shard is in the top bits, the place in the shard's table in the low 32.
struct HashedKey {
  const ObjectKey* key;
  uint64_t hash;
  uint32_t tag() const { return static_cast<uint32_t>(hash); }
};

// A batch and which of its keys are this shard's.
struct ShardBatch {
  std::span<const ObjectKey> keys;
  std::span<const uint64_t> hashes;   // One a key.
  std::span<const uint32_t> members;  // Indices into keys.
};

// An entry that has died and what the pool has to do about it. Holds a pin on the entry.
struct Doomed {
  EntryId entry;
  EntryIndex parent = kNoEntry;  // To be told that the entry is gone.
  int32_t rank = 0;
  uint32_t size = 0;
  bool was_visible = false;
  std::optional<ObjectKey> awaited;  // The key it waited for.
  std::vector<EntryId> children;     // Detached; they have to die too.
};

struct ShardCounters {
  int64_t objects = 0;  // Visible.
  int64_t writing = 0;
  int64_t waiting = 0;
  int64_t parents = 0;  // Visible, with children.
  int64_t probed = 0;
  int64_t probe_hits = 0;
  int64_t leased = 0;
  int64_t lease_misses = 0;
  int64_t stored = 0;
  int64_t stored_bytes = 0;
  int64_t exists = 0;
  int64_t gets = 0;
  int64_t get_misses = 0;
  int64_t evicted = 0;
  int64_t evicted_bytes = 0;
  int64_t evicted_waiting = 0;
  int64_t removed = 0;
};

class IndexShard {
 public:
  struct Options {
    uint32_t shard = 0;
    EntryIndex first_entry = 0;
    int64_t entries_max = 0;
    bool closed = true;
    bool grows = false;               // The index takes memory as it is used.
    std::span<KeyTable::Slot> table;  // When it does not grow: KeyTable::SlotsFor(entries_max) slots.
    int64_t object_sizes_max = 64;
    int64_t waiting_ttl = 0;  // Nanoseconds.
    TickScale ticks{MonotonicTime()};
    const EvictionPolicy* policy = nullptr;
  };

  IndexShard(EntryArena& entries, const Options& options);
  absl::Status Init();
  // For any thread, when the index does not grow: where the search for the key will start.
  void PrefetchSlot(uint32_t tag) const { table_.Prefetch(tag); }

  // Reading.
  void Probe(const ShardBatch& batch, std::span<KeyAnswer> answers);
  void Lease(const ShardBatch& batch, MonotonicTime now, MonotonicTime deadline, std::span<KeyAnswer> answers,
             std::vector<EntryRef>& leased);
  void Release(std::span<const EntryRef> entries, MonotonicTime now);
  // Pins the visible object of the key, for its reader; kNoEntry if there is none. A count of `gets` or `get_misses`.
  EntryIndex Pin(HashedKey key);
  // Ends a pin. The slot to free when it was the last pin of a dead entry, which is then gone.
  std::optional<Slot> Unpin(EntryIndex entry);

  // Writing, in this order, with the parent's shard asked in between (Attach).
  struct Reserved {
    PutAnswer answer;  // kStored: `entry` is new, in writing, pinned by its writer. Else why not.
    EntryId entry;
  };
  Reserved Reserve(HashedKey key, uint32_t size, ObjectKind kind);
  struct Placement {
    Slot slot;
    EntryIndex parent = kNoEntry;
    uint32_t depth = 0;
    std::optional<ObjectKey> awaited;  // The parent that was not there.
  };
  enum class Placed : uint8_t { kReady, kWaiting, kDead };
  // kWaiting: it waits for `awaited` (not so when that came meanwhile, or without a slot). kDead: it was removed with
  // its parent.
  Placed Place(EntryIndex entry, const Placement& placement);
  // The writer gives up; its pin is the pool's now. The entry may have died before.
  Doomed Abandon(EntryIndex entry);
  struct Committed {
    PutAnswer answer;                 // kNotStored: it died meanwhile; the pin stays until Abandon and Unpin.
    std::vector<WaitingChild> woken;  // Those that waited for this key.
  };
  Committed Commit(EntryIndex entry, uint64_t digest, MonotonicTime now);

  // The parent's side.
  struct Attached {
    EntryIndex parent = kNoEntry;  // kNoEntry: not there; the child is registered as waiting for the key.
    uint32_t depth = 0;            // Of the child.
  };
  Attached Attach(HashedKey parent, EntryId child);
  void Unregister(const ObjectKey& parent, EntryId child) { waiting_.Unregister(parent, child); }
  // Takes the child off its parent, which inherits the later rank. The parent's key in the order if this made it a
  // candidate.
  OrderKey Uncount(EntryIndex parent, EntryIndex child, int32_t rank);

  // The waking child's side: pin it if it still waits; then tell it its parent.
  bool PinWaiting(EntryId child);
  struct Adopted {
    bool alive = false;  // False: it died meanwhile, and its parent has to be told.
    Bytes waited;        // What leaves the waiting share.
    std::vector<WaitingChild> woken;
  };
  Adopted Adopt(EntryIndex child, EntryIndex parent, uint32_t depth, MonotonicTime now);

  // Dying.
  enum class Death : uint8_t { kEvicted, kRemoved };
  // Any entry that is not dead already: removal does not ask for leases. nullopt when it is not the same object any
  // more.
  std::optional<Doomed> Kill(EntryId entry, Death death);
  // Only a visible object without children, lease or pin.
  std::optional<Doomed> Evict(EntryId entry, MonotonicTime now);
  // Up to `max` waiting objects with a deadline of at most `until`, earliest first.
  std::vector<Doomed> DropWaiting(MonotonicTime until, size_t max);

  // Victims. `size_class` below 0: of any. The coldest that may leave now, after parking what is held.
  OrderKey PeekColdest(int size_class, MonotonicTime now);
  // Victims, coldest first, with a key of at most `limit`: up to `max`, or until `bytes_goal` is reached.
  void TakeColdest(int size_class, OrderKey limit, size_t max, int64_t bytes_goal, MonotonicTime now,
                   std::vector<Doomed>& victims);
  struct Cold {
    OrderKey key;
    uint32_t slab;
  };
  // The coldest candidates of classes other than this one, at most `max` a class.
  void CollectColdest(int except_class, size_t max, MonotonicTime now, std::vector<Cold>& out);

  // What stands in the way of one entry's leaving, for judging a slab.
  struct Inspection {
    enum class Verdict : uint8_t { kGone, kHeld, kFree } verdict = Verdict::kGone;
    int64_t deadline = INT64_MAX;  // When a lease that holds it ends.
    EntryId entry;
    EntryIndex parent = kNoEntry;
    uint32_t depth = 0;
    int32_t rank = 0;
    std::vector<EntryIndex> children;  // One more than asked for, at most.
  };
  Inspection Inspect(EntryIndex entry, MonotonicTime now, size_t children_max) const;

  EntryId FindVisible(HashedKey key) const;
  EntryId FindAny(HashedKey key) const;
  // Visible and waiting objects, of one namespace or of all.
  std::vector<EntryId> Everything(std::optional<NamespaceId> name_space) const;

  // Candidates that were found held, by reason, and the rest by state.
  HeldCounts HeldInTheWay() const;
  // Everything held, at `now` or at the latest time that this shard has seen. In time of the leases that ran out since
  // the last look, and of no other entry.
  HeldCounts Held(MonotonicTime now);
  int64_t NextParkedDeadline() const;  // Nanoseconds; INT64_MAX if none.
  const ShardCounters& counters() const { return counters_; }
  size_t index_bytes() const;

 private:
  EntryIndex Find(HashedKey key) const;
  EntryIndex AllocateEntry();
  void FreeEntry(EntryIndex index);
  bool IsAlive(EntryId id) const;
  ObjectKey KeyOf(const Entry& entry) const;
  static bool Leased(const Entry& entry, MonotonicTime now) { return now.nanoseconds() < entry.deadline; }
  template <typename Visit>
  void ForEachPrefetched(const ShardBatch& batch, bool neighbours, Visit visit);
  // Counted as pinned: its reader, or whoever ends it, has a pin. A writer's pin counts as writing.
  static bool Readable(const Entry& entry) {
    return entry.state == EntryState::kVisible || entry.state == EntryState::kDead;
  }
  void ExtendLease(EntryIndex index, MonotonicTime now, MonotonicTime deadline);

  void Publish(EntryIndex index, MonotonicTime now, std::vector<WaitingChild>& woken);
  Doomed Bury(EntryIndex index, Death death);
  void StopWaiting(EntryIndex index);
  EvictionView ViewOf(const Entry& entry) const;
  OrderKey KeyInOrder(const Entry& entry) const { return MakeOrderKey(entry.rank, entry.depth); }
  void List(EntryIndex index);
  void Unlist(EntryIndex index);
  void Park(EntryIndex index, MonotonicTime now);
  void UnparkExpired(MonotonicTime now);
  bool Parkable(const Entry& entry, MonotonicTime now) const { return entry.pins > 0 || Leased(entry, now); }
  OrderKey FirstFree(BucketOrder& order, MonotonicTime now);

  EntryArena& entries_;
  const Options options_;
  KeyTable table_;
  std::vector<BucketOrder> candidates_;  // One a size class.
  size_t classes_used_ = 0;              // Classes from here on never had a candidate.
  BucketOrder parked_;                   // Key: the lease deadline, or kPinnedKey.
  int64_t parked_pinned_ = 0;
  WaitingPuts waiting_;
  EntryIndex free_head_ = kNoEntry;
  int64_t fresh_ = 0;  // Entries ever used.
  ShardCounters counters_;
  int64_t pinned_ = 0;  // Readable entries with a pin.
  LeaseCount leases_;   // Of visible entries.
};

}  // namespace tenure::store
