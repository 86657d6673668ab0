// How objects leave the pool: to make room, in watermark passes, by removal.
#include <algorithm>
#include <utility>

#include "tenure/store/key_hash.h"
#include "tenure/store/pool_engine.h"

namespace tenure::store {
namespace {

constexpr int kRoomAttempts =
    16;  // Another put may take what this one has freed; after so many the pool is as good as full.

}  // namespace

// The rest of a death: tells the parent (or the key it waited for), ends the pool's pin and frees the slot, or gives it
// to `seeker`. Returns the parent's key if that became a candidate.
OrderKey PoolEngine::Finish(const Doomed& doomed, RoomSeeker* seeker) {
  OrderKey parent_key = kNoOrderKey;
  if (doomed.parent != kNoEntry) {
    Shard& shard = ShardOfEntry(doomed.parent);
    MutexLock lock(shard.mutex);
    parent_key = shard.core->Uncount(doomed.parent, doomed.entry.index, doomed.rank);
  }
  if (doomed.awaited.has_value()) {
    waiting_bytes_.fetch_sub(doomed.size, std::memory_order_relaxed);
    Shard& shard = ShardOfHash(HashOf(*doomed.awaited));
    MutexLock lock(shard.mutex);
    shard.core->Unregister(*doomed.awaited, doomed.entry);
  }
  std::optional<Slot> slot;
  {
    Shard& shard = ShardOfEntry(doomed.entry.index);
    MutexLock lock(shard.mutex);
    slot = shard.core->Unpin(doomed.entry.index);
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (!slot.has_value()) return parent_key;
  entries_.fetch_sub(1, std::memory_order_relaxed);
  if (slot->slab == kNoSlab) return parent_key;
  const bool wanted = seeker != nullptr && !seeker->slot.has_value() && seeker->size == Bytes(doomed.size);
  if (wanted && slabs_->Reassign(*slot, seeker->owner)) {
    seeker->slot = slot;
  } else {
    slabs_->Free(*slot);
  }
  return parent_key;
}

// Removes the roots and all their descendants; returns how many visible objects of `counted` (all, if none) went.
int64_t PoolEngine::KillTree(std::vector<EntryId> roots, std::optional<NamespaceId> counted) {
  int64_t visible = 0;
  while (!roots.empty()) {
    const EntryId next = roots.back();
    roots.pop_back();
    std::optional<Doomed> doomed;
    {
      Shard& shard = ShardOfEntry(next.index);
      MutexLock lock(shard.mutex);
      doomed = shard.core->Kill(next, IndexShard::Death::kRemoved);
      if (!doomed.has_value()) continue;
      const Entry& entry = arena_[next.index];
      if (doomed->was_visible && (!counted.has_value() || entry.name_space == counted->value())) ++visible;
    }
    roots.insert(roots.end(), doomed->children.begin(), doomed->children.end());
    Finish(*doomed, nullptr);
  }
  return visible;
}

int64_t PoolEngine::DropWaiting(MonotonicTime until, int64_t max) {
  int64_t dropped = 0;
  if (waiting_bytes_.load(std::memory_order_relaxed) == 0) return 0;
  for (Shard& shard : shards_) {
    std::vector<Doomed> victims;
    {
      MutexLock lock(shard.mutex);
      victims = shard.core->DropWaiting(until, static_cast<size_t>(max - dropped));
    }
    for (const Doomed& victim : victims) Finish(victim, nullptr);
    dropped += static_cast<int64_t>(victims.size());
    if (dropped == max) break;
  }
  return dropped;
}

// A slot of this size for a put: a free one, else one that the policy's victims leave.
std::optional<Slot> PoolEngine::FindRoom(Bytes size, EntryIndex owner, MonotonicTime now) {
  RoomSeeker seeker{size, owner, slabs_->Allocate(size, owner)};
  for (int attempt = 0; !seeker.slot.has_value() && attempt < kRoomAttempts; ++attempt) {
    if (DropWaiting(MonotonicTime::Max(), 1) > 0) {
      seeker.slot = slabs_->Allocate(size, owner);
      continue;
    }
    bool progress = false;
    if (pass_pending_.load(std::memory_order_relaxed)) {
      progress = PassStep(now, &seeker);
      if (!seeker.slot.has_value()) seeker.slot = slabs_->Allocate(size, owner);
    }
    if (!seeker.slot.has_value()) seeker.slot = TryRecut(size, owner, now);
    if (seeker.slot.has_value()) break;
    if (const std::optional<uint16_t> own = slabs_->ClassOf(size); own.has_value()) {
      progress |= EvictColdest({.size_class = *own, .objects_max = 1}, now, &seeker) > 0;
    }
    if (!seeker.slot.has_value()) seeker.slot = slabs_->Allocate(size, owner);
    if (!progress) break;
  }
  if (seeker.slot.has_value()) StartPassIfAbove(now);
  return seeker.slot;
}

// Victims in the order of their keys over all shards. In a closed pool only one key is taken at a time, since the
// parent of a victim may come next.
int64_t PoolEngine::EvictColdest(const StepLimits& limits, MonotonicTime now, RoomSeeker* seeker) {
  thread_local std::vector<OrderKey> coldest;
  thread_local std::vector<Doomed> victims;
  coldest.resize(shards_.size());
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    MutexLock lock(shards_[shard].mutex);
    coldest[shard] = shards_[shard].core->PeekColdest(limits.size_class, now);
  }
  int64_t evicted = 0;
  int64_t bytes = 0;
  while (evicted < limits.objects_max && bytes < limits.bytes_goal) {
    const auto first = std::min_element(coldest.begin(), coldest.end());
    if (*first > limits.last) break;
    OrderKey limit = *first;
    if (options_.mode == PoolMode::kIndependent) {
      limit = limits.last;
      for (auto other = coldest.begin(); other != coldest.end(); ++other) {
        if (other != first) limit = std::min(limit, *other);
      }
    }
    Shard& shard = shards_[static_cast<size_t>(first - coldest.begin())];
    victims.clear();
    {
      MutexLock lock(shard.mutex);
      shard.core->TakeColdest(limits.size_class, limit, static_cast<size_t>(limits.objects_max - evicted),
                              limits.bytes_goal - bytes, now, victims);
      *first = shard.core->PeekColdest(limits.size_class, now);
    }
    for (const Doomed& victim : victims) {
      bytes += victim.size;
      const OrderKey parent_key = Finish(victim, seeker);
      // A parent of another class only costs the next look at its shard.
      if (parent_key != kNoOrderKey) {
        OrderKey& shard_coldest = coldest[ShardOf(victim.parent)];
        shard_coldest = std::min(shard_coldest, parent_key);
      }
    }
    evicted += static_cast<int64_t>(victims.size());
  }
  return evicted;
}

// Makes room for one more entry in a shard that has none left.
bool PoolEngine::EvictFromShard(Shard& shard, MonotonicTime now) {
  std::vector<Doomed> victims;
  {
    MutexLock lock(shard.mutex);
    shard.core->TakeColdest(-1, kNoOrderKey - 1, 1, INT64_MAX, now, victims);
  }
  for (const Doomed& victim : victims) Finish(victim, nullptr);
  return !victims.empty();
}

void PoolEngine::StartPassIfAbove(MonotonicTime now) {
  const double used = static_cast<double>(slabs_->used().value());
  if (used <= options_.high_watermark * static_cast<double>(slabs_->capacity().value())) return;
  if (pass_pending_.load(std::memory_order_relaxed)) return;
  pass_start_tick_.store(ticks_.ToTick(now), std::memory_order_relaxed);
  if (!pass_pending_.exchange(true, std::memory_order_relaxed)) passes_total_.fetch_add(1, std::memory_order_relaxed);
}

// One step of the pending pass; true when more is left.
bool PoolEngine::PassStep(MonotonicTime now, RoomSeeker* seeker) {
  const int64_t low = static_cast<int64_t>(options_.low_watermark * static_cast<double>(slabs_->capacity().value()));
  const int64_t step_max = options_.pass_step_objects_max;
  int64_t gone = DropWaiting(MonotonicTime::Max(), step_max);
  if (const int64_t excess = slabs_->used().value() - low; excess > 0 && gone < step_max) {
    // What came or was used in the tick in which the pass began stays: a pass that finds all else held must not eat the
    // latest puts.
    const OrderKey last = FirstKeyOfTick(pass_start_tick_.load(std::memory_order_relaxed)) - 1;
    gone += EvictColdest({.size_class = -1, .objects_max = step_max - gone, .bytes_goal = excess, .last = last}, now,
                         seeker);
  }
  const bool more = gone > 0 && slabs_->used().value() > low;
  if (!more) pass_pending_.store(false, std::memory_order_relaxed);
  return more;
}

bool PoolEngine::Maintain(MonotonicTime now) {
  DropWaiting(now, INT64_MAX);
  return pass_pending_.load(std::memory_order_relaxed) && PassStep(now, nullptr);
}

void PoolEngine::CountRefusal() {
  HeldCounts sum;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    const HeldCounts held = shard.core->HeldInTheWay();
    sum.leased += held.leased;
    sum.pinned += held.pinned;
    sum.writing += held.writing;
    sum.waiting += held.waiting;
    sum.parents += held.parents;
  }
  MutexLock lock(memo_mutex_);
  refused_by_.leased += sum.leased;
  refused_by_.pinned += sum.pinned;
  refused_by_.writing += sum.writing;
  refused_by_.waiting += sum.waiting;
  refused_by_.parents += sum.parents;
}

OrderKey PoolEngine::PeekColdest(int size_class, MonotonicTime now) {
  OrderKey coldest = kNoOrderKey;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    coldest = std::min(coldest, shard.core->PeekColdest(size_class, now));
  }
  return coldest;
}

}  // namespace tenure::store
