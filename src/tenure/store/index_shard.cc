#include "tenure/store/index_shard.h"

#include <algorithm>

#include "tenure/base/check.h"
#include "tenure/store/key_hash.h"

namespace tenure::store {
namespace {

// How many keys ahead a table slot, an entry and its neighbours in the order are fetched: enough to cover a miss of
// about 100 ns each.
constexpr size_t kSlotAhead = 40;
constexpr size_t kEntryAhead = 24;
constexpr size_t kNeighboursAhead = 12;
constexpr size_t kFewKeys = 4;  // Up to here the pipeline costs more than it saves.

void PrefetchEntry(const Entry& entry, bool both_lines) {
  __builtin_prefetch(&entry);
  if (both_lines) __builtin_prefetch(&entry.prev);
}

}  // namespace

IndexShard::IndexShard(EntryArena& entries, const Options& options)
    : entries_(entries), options_(options), candidates_(static_cast<size_t>(options.object_sizes_max)) {}

absl::Status IndexShard::Init() {
  if (options_.grows) return table_.InitGrowing();
  entries_.Touch(options_.first_entry, options_.entries_max);
  table_.InitFixed(options_.table);
  return absl::OkStatus();
}

// Calls visit(i) for each member i of the batch, with the memory that its key leads to on its way to the cache.
template <typename Visit>
void IndexShard::ForEachPrefetched(const ShardBatch& batch, bool neighbours, Visit visit) {
  const size_t count = batch.members.size();
  if (count <= kFewKeys) {
    for (const uint32_t member : batch.members) visit(member);
    return;
  }
  const auto tag = [&batch](size_t at) { return static_cast<uint32_t>(batch.hashes[batch.members[at]]); };
  for (size_t at = 0; at < count + kSlotAhead; ++at) {
    if (at < count) table_.Prefetch(tag(at));
    if (const size_t ahead = at - (kSlotAhead - kEntryAhead); ahead < count) {
      if (const EntryIndex entry = table_.FirstCandidate(tag(ahead)); entry != kNoEntry) {
        PrefetchEntry(entries_[entry], neighbours);
      }
    }
    if (const size_t ahead = at - (kSlotAhead - kNeighboursAhead); neighbours && ahead < count) {
      if (const EntryIndex index = table_.FirstCandidate(tag(ahead)); index != kNoEntry) {
        const Entry& entry = entries_[index];
        if (entry.listing != Listing::kNone) {
          if (entry.prev != kNoEntry) __builtin_prefetch(&entries_[entry.prev].next, 1);
          if (entry.next != kNoEntry) __builtin_prefetch(&entries_[entry.next].prev, 1);
        }
      }
    }
    if (const size_t now = at - kSlotAhead; now < count) visit(batch.members[now]);
  }
}

void IndexShard::Probe(const ShardBatch& batch, std::span<KeyAnswer> answers) {
  int64_t hits = 0;
  ForEachPrefetched(batch, false, [&](uint32_t at) {
    const bool present = FindVisible({&batch.keys[at], batch.hashes[at]}).index != kNoEntry;
    answers[at] = present ? KeyAnswer::kPresent : KeyAnswer::kAbsent;
    hits += present;
  });
  counters_.probed += static_cast<int64_t>(batch.members.size());
  counters_.probe_hits += hits;
}

void IndexShard::Lease(const ShardBatch& batch, MonotonicTime now, MonotonicTime deadline, std::span<KeyAnswer> answers,
                       std::vector<EntryRef>& leased) {
  int64_t hits = 0;
  leases_.PassTo(now);
  ForEachPrefetched(batch, true, [&](uint32_t at) {
    const EntryId found = FindVisible({&batch.keys[at], batch.hashes[at]});
    answers[at] = found.index == kNoEntry ? KeyAnswer::kAbsent : KeyAnswer::kPresent;
    if (found.index == kNoEntry) return;
    ++hits;
    ExtendLease(found.index, now, deadline);
    leased.push_back({options_.shard, found.index, found.generation});
  });
  leases_.Settle();
  counters_.leased += hits;
  counters_.lease_misses += static_cast<int64_t>(batch.members.size()) - hits;
}

void IndexShard::ExtendLease(EntryIndex index, MonotonicTime now, MonotonicTime deadline) {
  Entry& entry = entries_[index];
  if (!Leased(entry, now)) entry.holders = 0;
  ++entry.holders;
  const int64_t before = entry.deadline;
  entry.deadline = std::max(entry.deadline, deadline.nanoseconds());
  leases_.Move(before, entry.deadline);
  EvictionView view = ViewOf(entry);
  view.leased = now;
  view.lease_deadline = MonotonicTime::FromNanoseconds(entry.deadline);
  entry.rank = options_.ticks.ToTick(options_.policy->Rank(view, now));
  if (entry.listing != Listing::kCandidate) return;
  BucketOrder& order = candidates_[entry.size_class];
  if (order.KeyOf(entry) == KeyInOrder(entry)) return;
  order.Remove(entries_, index);
  order.Append(entries_, index, KeyInOrder(entry));
}

void IndexShard::Release(std::span<const EntryRef> entries, MonotonicTime now) {
  leases_.PassTo(now);
  for (size_t at = 0; at < entries.size(); ++at) {
    if (at + kEntryAhead < entries.size()) PrefetchEntry(entries_[entries[at + kEntryAhead].index], false);
    const EntryRef& ref = entries[at];
    Entry& entry = entries_[ref.index];
    if (entry.generation != ref.generation || entry.state != EntryState::kVisible || !Leased(entry, now)) continue;
    if (--entry.holders > 0) continue;
    leases_.Move(entry.deadline, now.nanoseconds());
    entry.deadline = now.nanoseconds();
    if (entry.listing == Listing::kParked && entry.pins == 0) {
      Unlist(ref.index);
      List(ref.index);
    }
  }
  leases_.Settle();
}

EntryIndex IndexShard::Pin(HashedKey key) {
  const EntryIndex index = FindVisible(key).index;
  if (index == kNoEntry) {
    ++counters_.get_misses;
  } else {
    ++counters_.gets;
    if (++entries_[index].pins == 1) ++pinned_;
  }
  return index;
}

std::optional<Slot> IndexShard::Unpin(EntryIndex index) {
  Entry& entry = entries_[index];
  TENURE_CHECK(entry.pins > 0);
  if (--entry.pins > 0) return std::nullopt;
  if (Readable(entry)) --pinned_;
  if (entry.state == EntryState::kDead) {
    const Slot slot{entry.slab, entry.slot, entry.size_class};
    FreeEntry(index);
    return slot;
  }
  if (entry.listing == Listing::kParked) {
    Unlist(index);
    List(index);
  }
  return std::nullopt;
}

IndexShard::Reserved IndexShard::Reserve(HashedKey key, uint32_t size, ObjectKind kind) {
  if (const EntryIndex found = Find(key); found != kNoEntry) {
    const Entry& entry = entries_[found];
    const EntryId id{found, entry.generation};
    if (entry.state == EntryState::kWriting) return {PutAnswer::kBusy, id};
    if (entry.size != size) return {PutAnswer::kSizeDiffers, id};
    if (entry.state == EntryState::kWaiting) return {PutAnswer::kWaiting, id};
    ++counters_.exists;
    return {PutAnswer::kExists, id};
  }
  const EntryIndex index = AllocateEntry();
  if (index == kNoEntry) return {PutAnswer::kRefusedIndex, {}};
  Entry& entry = entries_[index];
  const uint32_t generation = entry.generation + 1;
  entry = Entry{};
  entry.generation = generation;
  const auto bytes = key.key->hash.bytes();
  std::copy(bytes.begin(), bytes.end(), entry.hash.begin());
  entry.name_space = key.key->name_space.value();
  entry.hash_size = static_cast<uint8_t>(bytes.size());
  entry.state = EntryState::kWriting;
  entry.kind = kind;
  entry.deadline = INT64_MIN;
  entry.rank = INT32_MIN;
  entry.written_tick = INT32_MIN;
  entry.pins = 1;
  entry.size = size;
  entry.slab = kNoSlab;
  entry.first_child = kNoEntry;
  entry.parent = kNoEntry;
  entry.prev_sibling = kDetached;
  table_.Insert(key.tag(), index);
  ++counters_.writing;
  return {PutAnswer::kStored, {index, generation}};
}

IndexShard::Placed IndexShard::Place(EntryIndex index, const Placement& placement) {
  Entry& entry = entries_[index];
  entry.slab = placement.slot.slab;
  entry.slot = placement.slot.slot;
  entry.size_class = placement.slot.size_class;
  if (entry.state == EntryState::kDead) return Placed::kDead;
  if (placement.awaited.has_value() && entry.parent == kNoEntry && placement.slot.slab != kNoSlab) {
    entry.awaits_parent = true;
    waiting_.Add(index, *placement.awaited);
    return Placed::kWaiting;
  }
  if (placement.parent != kNoEntry) {
    entry.parent = placement.parent;
    entry.depth = placement.depth;
  }
  return Placed::kReady;
}

IndexShard::Committed IndexShard::Commit(EntryIndex index, uint64_t digest, MonotonicTime now) {
  Entry& entry = entries_[index];
  Committed committed{PutAnswer::kNotStored, {}};
  if (entry.state == EntryState::kDead) return committed;
  TENURE_CHECK(entry.state == EntryState::kWriting);
  entry.digest = digest;
  --entry.pins;
  --counters_.writing;
  if (entry.awaits_parent) {
    entry.state = EntryState::kWaiting;
    ++counters_.waiting;
    waiting_.SetDeadline(index, (now + absl::Nanoseconds(options_.waiting_ttl)).nanoseconds());
    committed.answer = PutAnswer::kWaiting;
    return committed;
  }
  committed.answer = PutAnswer::kStored;
  Publish(index, now, committed.woken);
  return committed;
}

void IndexShard::Publish(EntryIndex index, MonotonicTime now, std::vector<WaitingChild>& woken) {
  Entry& entry = entries_[index];
  entry.state = EntryState::kVisible;
  if (entry.pins > 0) ++pinned_;
  EvictionView view = ViewOf(entry);
  view.written = now;
  view.leased = MonotonicTime::Min();
  view.lease_deadline = MonotonicTime::Min();
  entry.written_tick = options_.ticks.ToTick(now);
  entry.rank = options_.ticks.ToTick(options_.policy->Rank(view, now));
  ++counters_.objects;
  ++counters_.stored;
  counters_.stored_bytes += entry.size;
  List(index);
  if (options_.closed && waiting_.AnyoneWaits()) woken = waiting_.Take(KeyOf(entry));
}

IndexShard::Attached IndexShard::Attach(HashedKey parent_key, EntryId child) {
  const EntryId found = FindVisible(parent_key);
  if (found.index == kNoEntry) {
    waiting_.Register(*parent_key.key, child);
    return {};
  }
  Entry& parent = entries_[found.index];
  Entry& link = entries_[child.index];
  link.prev_sibling = kNoEntry;
  link.next_sibling = parent.first_child;
  if (parent.first_child != kNoEntry) entries_[parent.first_child].prev_sibling = child.index;
  parent.first_child = child.index;
  if (++parent.children == 1) {
    ++counters_.parents;
    Unlist(found.index);
  }
  return {found.index, parent.depth + 1};
}

OrderKey IndexShard::Uncount(EntryIndex parent_index, EntryIndex child, int32_t rank) {
  Entry& link = entries_[child];
  if (link.prev_sibling == kDetached) return kNoOrderKey;  // Its parent was removed, and let go of it.
  Entry& parent = entries_[parent_index];
  if (link.prev_sibling == kNoEntry) {
    parent.first_child = link.next_sibling;
  } else {
    entries_[link.prev_sibling].next_sibling = link.next_sibling;
  }
  if (link.next_sibling != kNoEntry) entries_[link.next_sibling].prev_sibling = link.prev_sibling;
  link.prev_sibling = kDetached;
  parent.rank = std::max(parent.rank, rank);
  if (--parent.children > 0) return kNoOrderKey;
  --counters_.parents;
  List(parent_index);
  return KeyInOrder(parent);
}

bool IndexShard::PinWaiting(EntryId child) {
  if (!IsAlive(child)) return false;
  Entry& entry = entries_[child.index];
  if (entry.state == EntryState::kVisible || entry.parent != kNoEntry) return false;
  ++entry.pins;
  return true;
}

IndexShard::Adopted IndexShard::Adopt(EntryIndex index, EntryIndex parent, uint32_t depth, MonotonicTime now) {
  Entry& entry = entries_[index];
  Adopted adopted;
  if (entry.state == EntryState::kDead) return adopted;
  adopted.alive = true;
  if (entry.awaits_parent) adopted.waited = Bytes(entry.size);
  entry.parent = parent;
  entry.depth = depth;
  StopWaiting(index);
  if (entry.state == EntryState::kWaiting) {
    --counters_.waiting;
    Publish(index, now, adopted.woken);
  }
  return adopted;
}

void IndexShard::StopWaiting(EntryIndex index) {
  if (!entries_[index].awaits_parent) return;
  entries_[index].awaits_parent = false;
  waiting_.Drop(index);
}

EntryIndex IndexShard::Find(HashedKey key) const {
  return table_.Find(key.tag(), [&](EntryIndex index) { return entries_[index].Matches(*key.key); });
}

EntryId IndexShard::FindVisible(HashedKey key) const {
  const EntryIndex index = Find(key);
  if (index == kNoEntry || entries_[index].state != EntryState::kVisible) return {};
  return {index, entries_[index].generation};
}

EntryId IndexShard::FindAny(HashedKey key) const {
  const EntryIndex index = Find(key);
  return index == kNoEntry ? EntryId{} : EntryId{index, entries_[index].generation};
}

EntryIndex IndexShard::AllocateEntry() {
  if (free_head_ != kNoEntry) {
    const EntryIndex index = free_head_;
    free_head_ = entries_[index].next;
    if (free_head_ != kNoEntry) PrefetchEntry(entries_[free_head_], true);  // For the next put.
    return index;
  }
  if (fresh_ == options_.entries_max) return kNoEntry;
  return options_.first_entry + static_cast<EntryIndex>(fresh_++);
}

void IndexShard::FreeEntry(EntryIndex index) {
  Entry& entry = entries_[index];
  entry.state = EntryState::kFree;
  entry.next = free_head_;
  free_head_ = index;
}

bool IndexShard::IsAlive(EntryId id) const {
  const Entry& entry = entries_[id.index];
  return entry.generation == id.generation && entry.state != EntryState::kFree && entry.state != EntryState::kDead;
}

ObjectKey IndexShard::KeyOf(const Entry& entry) const {
  return {NamespaceId(entry.name_space), kv::BlockHash::FromTrusted({entry.hash.data(), entry.hash_size})};
}

EvictionView IndexShard::ViewOf(const Entry& entry) const {
  return {.written = options_.ticks.ToTime(entry.written_tick),
          .leased = MonotonicTime::Min(),
          .lease_deadline = MonotonicTime::Min(),
          .size = Bytes(entry.size),
          .depth = entry.depth,
          .children = entry.children,
          .kind = entry.kind};
}

}  // namespace tenure::store
