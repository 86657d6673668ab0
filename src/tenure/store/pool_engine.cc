#include "tenure/store/pool_engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/store/key_hash.h"

namespace tenure::store {
namespace {

// Entries a shard can hold: its share and room for the unevenness of hashing (four standard deviations; a shard that
// meets more evicts).
int64_t EntriesPerShard(int64_t objects_max, int shards) {
  const int64_t share = CeilDiv(objects_max, int64_t{shards});
  const int64_t slack = 4 * static_cast<int64_t>(std::sqrt(static_cast<double>(share))) + 16;
  return shards == 1 ? objects_max : std::min(objects_max, share + slack);
}

constexpr size_t kSmallBatch = 1024;

// Where the keys of a batch go, kept by each thread so that a call allocates nothing.
struct BatchScratch {
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> members;  // Keys by shard.
  std::vector<uint32_t> ends;     // Of each shard's part of members.
};
BatchScratch& ThreadScratch() {
  thread_local BatchScratch scratch;
  return scratch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PoolEngine>> PoolEngine::Create(const EmbeddedPoolOptions& options, MonotonicTime now) {
  const int64_t entries_per_shard = EntriesPerShard(options.objects_max, options.shards);
  const int entry_shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(entries_per_shard - 1)));
  auto arena = EntryArena::Create(int64_t{options.shards} << entry_shift);
  if (!arena.ok()) return arena.status();
  auto slabs = SlabMemory::Create({.slabs = options.capacity / options.slab_bytes,
                                   .slab_bytes = options.slab_bytes,
                                   .object_sizes_max = options.object_sizes_max,
                                   .mapped = options.memory == MemoryKind::kMapped});
  if (!slabs.ok()) return slabs.status();
  auto engine =
      std::unique_ptr<PoolEngine>(new PoolEngine(options, now, std::move(*arena), std::move(*slabs), entry_shift));
  const uint64_t slots = KeyTable::SlotsFor(entries_per_shard);
  if (!options.index_grows) {
    auto tables = MemoryRegion::Map("the pool's hash tables (objects_max)",
                                    static_cast<size_t>(options.shards) * slots * sizeof(KeyTable::Slot),
                                    MemoryRegion::Touch::kNow);
    if (!tables.ok()) return tables.status();
    engine->tables_ = std::move(*tables);
  }
  for (uint32_t shard = 0; shard < engine->shards_.size(); ++shard) {
    const IndexShard::Options shard_options = {
        .shard = shard,
        .first_entry = shard << entry_shift,
        .entries_max = entries_per_shard,
        .closed = options.mode == PoolMode::kClosed,
        .grows = options.index_grows,
        .table = options.index_grows
                     ? std::span<KeyTable::Slot>()
                     : std::span(reinterpret_cast<KeyTable::Slot*>(engine->tables_.data()) + shard * slots, slots),
        .object_sizes_max = options.object_sizes_max,
        .waiting_ttl = absl::ToInt64Nanoseconds(options.waiting_ttl),
        .ticks = engine->ticks_,
        .policy = engine->policy_.get()};
    engine->shards_[shard].core = std::make_unique<IndexShard>(engine->arena_, shard_options);
    const absl::Status status = engine->shards_[shard].core->Init();
    if (!status.ok()) return status;
  }
  return engine;
}

PoolEngine::PoolEngine(const EmbeddedPoolOptions& options, MonotonicTime now, EntryArena arena,
                       std::unique_ptr<SlabMemory> slabs, int entry_shift)
    : options_(options),
      ticks_(now),
      policy_(options.policy != nullptr ? options.policy : std::shared_ptr<const EvictionPolicy>(MakeLruPolicy())),
      shard_shift_(64 - std::countr_zero(static_cast<unsigned>(options.shards))),
      entry_shift_(entry_shift),
      arena_(std::move(arena)),
      slabs_(std::move(slabs)),
      shards_(static_cast<size_t>(options.shards)) {}

// Calls visit(shard, batch) for each shard that has keys in the batch, under no lock.
template <typename Visit>
void PoolEngine::ForEachShard(std::span<const ObjectKey> keys, Visit visit) {
  BatchScratch& scratch = ThreadScratch();
  scratch.hashes.resize(keys.size());
  scratch.members.resize(keys.size());
  scratch.ends.assign(shards_.size() + 1, 0);
  const bool prefetch = !options_.index_grows && keys.size() <= kSmallBatch;
  const auto shard_of = [this](uint64_t hash) { return shard_shift_ == 64 ? 0 : hash >> shard_shift_; };
  for (size_t at = 0; at < keys.size(); ++at) {
    scratch.hashes[at] = HashOf(keys[at]);
    // A small batch has too few keys in each shard to hide a miss behind the others, so that starts here.
    if (prefetch) shards_[shard_of(scratch.hashes[at])].core->PrefetchSlot(static_cast<uint32_t>(scratch.hashes[at]));
    ++scratch.ends[shard_of(scratch.hashes[at]) + 1];
  }
  for (size_t shard = 1; shard < scratch.ends.size(); ++shard) scratch.ends[shard] += scratch.ends[shard - 1];
  for (uint32_t at = 0; at < keys.size(); ++at) scratch.members[scratch.ends[shard_of(scratch.hashes[at])]++] = at;
  uint32_t begin = 0;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const uint32_t end = scratch.ends[shard];
    if (begin == end) continue;
    visit(shards_[shard], ShardBatch{keys, scratch.hashes, std::span(scratch.members).subspan(begin, end - begin)});
    begin = end;
  }
}

void PoolEngine::Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  ForEachShard(keys, [answers](Shard& shard, const ShardBatch& batch) {
    MutexLock lock(shard.mutex);
    shard.core->Probe(batch, answers);
  });
}

void PoolEngine::Lease(std::span<const ObjectKey> keys, MonotonicTime now, MonotonicTime deadline,
                       std::span<KeyAnswer> answers, std::vector<EntryRef>& leased) {
  ForEachShard(keys, [&](Shard& shard, const ShardBatch& batch) {
    MutexLock lock(shard.mutex);
    shard.core->Lease(batch, now, deadline, answers, leased);
  });
}

void PoolEngine::Release(std::span<const EntryRef> entries, MonotonicTime now) {
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin + 1;
    while (end < entries.size() && entries[end].shard == entries[begin].shard) ++end;
    Shard& shard = shards_[entries[begin].shard];
    MutexLock lock(shard.mutex);
    shard.core->Release(entries.subspan(begin, end - begin), now);
    begin = end;
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
}

SlotMemory PoolEngine::MemoryOf(const Slot& slot, Bytes size) const {
  const int64_t offset = slabs_->OffsetOf(slot, size);
  return {slabs_->data() == nullptr ? nullptr : slabs_->data() + offset, offset, size};
}

PoolEngine::Pinned PoolEngine::Pin(const ObjectKey& key) {
  const HashedKey hashed{&key, HashOf(key)};
  Shard& shard = ShardOfHash(hashed.hash);
  MutexLock lock(shard.mutex);
  const EntryIndex index = shard.core->Pin(hashed);
  if (index == kNoEntry) return {};
  const Entry& entry = arena_[index];
  const Slot slot{entry.slab, entry.slot, entry.size_class};
  return {index, entry.generation, MemoryOf(slot, Bytes(entry.size)), entry.digest};
}

void PoolEngine::Unpin(EntryIndex entry) {
  Shard& shard = ShardOfEntry(entry);
  std::optional<Slot> slot;
  {
    MutexLock lock(shard.mutex);
    slot = shard.core->Unpin(entry);
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (!slot.has_value()) return;
  entries_.fetch_sub(1, std::memory_order_relaxed);
  if (slot->slab != kNoSlab) slabs_->Free(*slot);
}

bool PoolEngine::Remove(const ObjectKey& key) {
  const HashedKey hashed{&key, HashOf(key)};
  EntryId found;
  bool visible = false;
  {
    Shard& shard = ShardOfHash(hashed.hash);
    MutexLock lock(shard.mutex);
    found = shard.core->FindAny(hashed);
    // A put of this key that is still open comes after this removal, and is left alone.
    if (found.index == kNoEntry || arena_[found.index].state == EntryState::kWriting) return false;
    visible = arena_[found.index].state == EntryState::kVisible;
  }
  KillTree({found}, std::nullopt);
  return visible;
}

void PoolEngine::RemoveEntry(EntryId entry) { KillTree({entry}, std::nullopt); }

int64_t PoolEngine::Clear(std::optional<NamespaceId> name_space) {
  int64_t cleared = 0;
  for (Shard& shard : shards_) {
    std::vector<EntryId> everything;
    {
      MutexLock lock(shard.mutex);
      everything = shard.core->Everything(name_space);
    }
    cleared += KillTree(std::move(everything), name_space);
  }
  return cleared;
}

PoolStats PoolEngine::Stats(MonotonicTime now) const {
  PoolStats stats;
  size_t index_bytes = slabs_->index_bytes();
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    const ShardCounters& counters = shard.core->counters();
    stats.objects += counters.objects;
    stats.probed_keys_total += counters.probed;
    stats.probe_hits_total += counters.probe_hits;
    stats.leased_keys_total += counters.leased;
    stats.lease_misses_total += counters.lease_misses;
    stats.stored_total += counters.stored;
    stats.stored_bytes_total += Bytes(counters.stored_bytes);
    stats.exists_total += counters.exists;
    stats.gets_total += counters.gets;
    stats.get_misses_total += counters.get_misses;
    stats.evicted_total += counters.evicted;
    stats.evicted_bytes_total += Bytes(counters.evicted_bytes);
    stats.evicted_waiting_total += counters.evicted_waiting;
    stats.removed_total += counters.removed;
    const HeldCounts held = shard.core->Held(now);
    stats.held.leased += held.leased;
    stats.held.pinned += held.pinned;
    stats.held.writing += held.writing;
    stats.held.waiting += held.waiting;
    stats.held.parents += held.parents;
    index_bytes += shard.core->index_bytes();
  }
  stats.capacity = slabs_->capacity();
  stats.used = slabs_->used();
  stats.index_bytes = Bytes(static_cast<int64_t>(index_bytes));
  stats.passes_total = passes_total_.load(std::memory_order_relaxed);
  stats.recut_slabs_total = slabs_->recut_total();
  stats.refused_full_total = refused_full_.load(std::memory_order_relaxed);
  stats.refused_index_total = refused_index_.load(std::memory_order_relaxed);
  stats.refused_waiting_total = refused_waiting_.load(std::memory_order_relaxed);
  stats.refused_size_total = refused_size_.load(std::memory_order_relaxed);
  MutexLock lock(memo_mutex_);
  stats.refused_by = refused_by_;
  return stats;
}

}  // namespace tenure::store
