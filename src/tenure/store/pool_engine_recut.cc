// Giving a full class a slab of another one: which slab's content is worth least, and draining it.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tenure/store/pool_engine.h"

namespace tenure::store {
namespace {

constexpr size_t kSlabsJudgedMax = 16;     // A look.
constexpr size_t kCandidatesPerShard = 4;  // From which those slabs are found.
constexpr int64_t kSkipsMin = 16;          // Own victims between two looks that came to nothing.
constexpr size_t kMemosMax = 1024;
constexpr int64_t kNodesPerSlotMax = 4;  // Descendants in other slabs that a drain may take along.

}  // namespace

// What draining a slab would remove, and what that is worth.
struct PoolEngine::Judgement {
  uint32_t slab = kNoSlab;
  bool possible = false;
  int64_t blocked_until = INT64_MAX;  // When the first lease that forbids it ends.
  double loss = 0;  // Ticks by which its content is younger than the asking class's coldest, summed over slots.
  std::vector<EntryId> victims;  // Descendants before ancestors.
};

std::optional<Slot> PoolEngine::TryRecut(Bytes size, EntryIndex owner, MonotonicTime now) {
  if (!slabs_->MayRecut(size)) return std::nullopt;
  const std::optional<uint16_t> own = slabs_->ClassOf(size);
  const OrderKey own_coldest = own.has_value() ? PeekColdest(*own, now) : kNoOrderKey;
  const bool has_own = own_coldest != kNoOrderKey;
  const int64_t changes = changes_.load(std::memory_order_relaxed);
  {
    MutexLock lock(memo_mutex_);
    if (recut_memos_.size() > kMemosMax) recut_memos_.clear();
    RecutMemo& memo = recut_memos_[size.value()];
    if (has_own && memo.evictions_to_skip > 0) {
      --memo.evictions_to_skip;
      return std::nullopt;
    }
    if (!has_own && memo.changes_seen == changes && now.nanoseconds() < memo.retry_at) return std::nullopt;
  }
  int64_t retry_at = NextParkedDeadline();
  const std::optional<Slot> slot = RecutColdest(size, owner, own_coldest, now, retry_at);
  MutexLock lock(memo_mutex_);
  RecutMemo& memo = recut_memos_[size.value()];
  memo = RecutMemo{};
  if (slot.has_value()) return slot;
  if (has_own) {
    memo.evictions_to_skip = std::max<int64_t>(kSkipsMin, slabs_->SlotsPerSlab(size) / 4);
  } else {
    memo.changes_seen = changes;
    memo.retry_at = retry_at;
  }
  return slot;
}

// `own_coldest`: kNoOrderKey when the class has nothing that may leave; then any slab will do. `retry_at` falls to the
// time at which a lease that was in the way ends.
std::optional<Slot> PoolEngine::RecutColdest(Bytes size, EntryIndex owner, OrderKey own_coldest, MonotonicTime now,
                                             int64_t& retry_at) {
  const std::optional<uint16_t> own = slabs_->ClassOf(size);
  std::vector<IndexShard::Cold> cold;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    shard.core->CollectColdest(own.has_value() ? *own : -1, kCandidatesPerShard, now, cold);
  }
  std::sort(cold.begin(), cold.end(),
            [](const auto& a, const auto& b) { return std::pair(a.key, a.slab) < std::pair(b.key, b.slab); });
  if (cold.empty() || (own_coldest != kNoOrderKey && TickOf(cold.front().key) >= TickOf(own_coldest)))
    return std::nullopt;
  const int64_t own_tick = own_coldest == kNoOrderKey ? ticks_.ToTick(now) : TickOf(own_coldest);
  Judgement best;
  std::vector<uint32_t> judged;
  for (const IndexShard::Cold& candidate : cold) {
    if (judged.size() == kSlabsJudgedMax) break;
    if (std::find(judged.begin(), judged.end(), candidate.slab) != judged.end()) continue;
    judged.push_back(candidate.slab);
    Judgement judgement = Judge(candidate.slab, own_tick, now);
    retry_at = std::min(retry_at, judgement.blocked_until);
    if (!judgement.possible || (own_coldest != kNoOrderKey && judgement.loss >= 0)) continue;
    if (!best.possible || judgement.loss < best.loss) best = std::move(judgement);
  }
  return best.possible ? Drain(best, size, owner, now) : std::nullopt;
}

// Adds what must go with the slab's content: its objects and all their descendants. False when one of them is held, or
// they are too many.
bool PoolEngine::CollectTree(const SlabMemory::Content& content, MonotonicTime now, Judgement& judgement,
                             std::vector<IndexShard::Inspection>& nodes) {
  const size_t nodes_max = static_cast<size_t>(content.slots * kNodesPerSlotMax);
  std::vector<EntryIndex> stack = content.owners;
  std::unordered_set<EntryIndex> seen(stack.begin(), stack.end());
  const size_t owners = stack.size();
  while (!stack.empty()) {
    const EntryIndex next = stack.back();
    stack.pop_back();
    IndexShard::Inspection node;
    {
      Shard& shard = ShardOfEntry(next);
      MutexLock lock(shard.mutex);
      node = shard.core->Inspect(next, now, nodes_max);
    }
    if (node.verdict == IndexShard::Inspection::Verdict::kGone) continue;
    if (node.verdict == IndexShard::Inspection::Verdict::kHeld) {
      judgement.blocked_until = node.deadline;
      return false;
    }
    for (const EntryIndex child : node.children) {
      if (seen.insert(child).second) stack.push_back(child);
    }
    if (seen.size() > owners + nodes_max) return false;
    nodes.push_back(std::move(node));
  }
  return true;
}

PoolEngine::Judgement PoolEngine::Judge(uint32_t slab, int64_t own_tick, MonotonicTime now) {
  Judgement judgement;
  judgement.slab = slab;
  const SlabMemory::Content content = slabs_->ContentOf(slab);
  std::vector<IndexShard::Inspection> nodes;
  if (content.slots == 0 || !CollectTree(content, now, judgement, nodes)) return judgement;
  judgement.possible = true;
  // Descendants first, so that each object's worth reaches its ancestors: a chain is as young as its youngest chunk.
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return a.depth != b.depth ? a.depth > b.depth : a.entry.index < b.entry.index;
  });
  std::unordered_map<EntryIndex, size_t> places;
  for (size_t at = 0; at < nodes.size(); ++at) places[nodes[at].entry.index] = at;
  double loss = 0;
  for (const IndexShard::Inspection& node : nodes) {
    loss += static_cast<double>(node.rank - own_tick);
    judgement.victims.push_back(node.entry);
    if (const auto parent = places.find(node.parent); parent != places.end()) {
      int32_t& rank = nodes[parent->second].rank;
      rank = std::max(rank, node.rank);
    }
  }
  // A free slot is worth less than nothing: it counts as an object twice as old as the asking class's coldest.
  const double own_age = static_cast<double>(ticks_.ToTick(now) - own_tick + 1);
  const int64_t free_slots = content.slots - static_cast<int64_t>(content.owners.size());
  judgement.loss = (loss - static_cast<double>(free_slots) * own_age) / static_cast<double>(content.slots);
  return judgement;
}

std::optional<Slot> PoolEngine::Drain(const Judgement& judgement, Bytes size, EntryIndex owner, MonotonicTime now) {
  if (!slabs_->BeginDrain(judgement.slab, size)) return std::nullopt;
  for (const EntryId victim : judgement.victims) {
    std::optional<Doomed> doomed;
    {
      Shard& shard = ShardOfEntry(victim.index);
      MutexLock lock(shard.mutex);
      doomed = shard.core->Evict(victim, now);
    }
    // Leased, read or extended since it was judged: the slab stays with its class, less what has gone.
    if (!doomed.has_value()) break;
    Finish(*doomed, nullptr);
  }
  return slabs_->EndDrain(judgement.slab, size, owner);
}

int64_t PoolEngine::NextParkedDeadline() {
  int64_t next = INT64_MAX;
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    next = std::min(next, shard.core->NextParkedDeadline());
  }
  return next;
}

}  // namespace tenure::store
