// How entries of a shard die: victims in their order, removal, waiting objects; and what is in the way.
#include <algorithm>

#include "tenure/base/check.h"
#include "tenure/store/index_shard.h"
#include "tenure/store/key_hash.h"

namespace tenure::store {
namespace {

constexpr OrderKey kPinnedKey = kNoOrderKey - 1;  // Parked until its pin ends.

// Deadlines in an unsigned order.
OrderKey DeadlineKey(int64_t deadline) {
  return std::min(static_cast<uint64_t>(deadline) ^ 0x8000'0000'0000'0000u, kPinnedKey - 1);
}

}  // namespace

std::optional<Doomed> IndexShard::Kill(EntryId id, Death death) {
  if (!IsAlive(id)) return std::nullopt;
  ++entries_[id.index].pins;
  return Bury(id.index, death);
}

std::optional<Doomed> IndexShard::Evict(EntryId id, MonotonicTime now) {
  if (!IsAlive(id)) return std::nullopt;
  const Entry& entry = entries_[id.index];
  if (entry.state != EntryState::kVisible || entry.children > 0 || Parkable(entry, now)) return std::nullopt;
  return Kill(id, Death::kEvicted);
}

Doomed IndexShard::Abandon(EntryIndex index) {
  const Entry& entry = entries_[index];
  if (entry.state == EntryState::kWriting) return Bury(index, Death::kRemoved);
  Doomed doomed;
  doomed.entry = {index, entry.generation};
  doomed.parent = entry.parent;
  doomed.rank = entry.rank;
  return doomed;
}

// Takes a live entry out of the table. The caller has a pin on it for the pool.
Doomed IndexShard::Bury(EntryIndex index, Death death) {
  Entry& entry = entries_[index];
  Doomed doomed{.entry = {index, entry.generation},
                .parent = entry.parent,
                .rank = entry.rank,
                .size = entry.size,
                .awaited = {},
                .children = {}};
  if (entry.awaits_parent) {
    doomed.awaited = waiting_.ParentOf(index);
    StopWaiting(index);
  }
  for (EntryIndex child = entry.first_child; child != kNoEntry;) {
    Entry& link = entries_[child];
    // A linked child cannot be freed before it is taken off this list, so its generation stands still.
    doomed.children.push_back({child, link.generation});
    child = link.next_sibling;
    link.prev_sibling = kDetached;
  }
  // The pin that the caller has is the first of a readable entry, unless someone reads it.
  if (entry.state != EntryState::kVisible || entry.pins == 1) ++pinned_;
  switch (entry.state) {
    case EntryState::kWriting:
      --counters_.writing;
      break;
    case EntryState::kWaiting:
      --counters_.waiting;
      if (death == Death::kEvicted) ++counters_.evicted_waiting;
      break;
    default:
      TENURE_CHECK(entry.state == EntryState::kVisible);
      doomed.was_visible = true;
      leases_.Move(entry.deadline, INT64_MIN);
      leases_.Settle();
      Unlist(index);
      --counters_.objects;
      if (entry.children > 0) --counters_.parents;
      if (death == Death::kEvicted) {
        ++counters_.evicted;
        counters_.evicted_bytes += entry.size;
      } else {
        ++counters_.removed;
      }
  }
  entry.first_child = kNoEntry;
  entry.children = 0;
  entry.state = EntryState::kDead;
  table_.Remove(static_cast<uint32_t>(HashOf(KeyOf(entry))), index);
  return doomed;
}

std::vector<Doomed> IndexShard::DropWaiting(MonotonicTime until, size_t max) {
  std::vector<Doomed> dropped;
  if (!waiting_.HasDeadlines()) return dropped;
  for (const EntryIndex index : waiting_.Expired(until.nanoseconds())) {
    Entry& entry = entries_[index];
    if (dropped.size() == max) break;
    if (entry.pins > 0) continue;  // Its parent came just now and is waking it.
    ++entry.pins;
    dropped.push_back(Bury(index, Death::kEvicted));
  }
  return dropped;
}

void IndexShard::List(EntryIndex index) {
  Entry& entry = entries_[index];
  if (entry.state != EntryState::kVisible || entry.children > 0) return;
  entry.listing = Listing::kCandidate;
  classes_used_ = std::max(classes_used_, size_t{entry.size_class} + 1);
  candidates_[entry.size_class].Append(entries_, index, KeyInOrder(entry));
}

void IndexShard::Unlist(EntryIndex index) {
  Entry& entry = entries_[index];
  if (entry.listing == Listing::kCandidate) candidates_[entry.size_class].Remove(entries_, index);
  if (entry.listing == Listing::kParked) {
    if (parked_.KeyOf(entry) == kPinnedKey) --parked_pinned_;
    parked_.Remove(entries_, index);
  }
  entry.listing = Listing::kNone;
}

void IndexShard::Park(EntryIndex index, MonotonicTime now) {
  Unlist(index);
  Entry& entry = entries_[index];
  entry.listing = Listing::kParked;
  // A leased one comes back by time even when it is pinned as well: the next scan looks again.
  const bool leased = Leased(entry, now);
  if (!leased) ++parked_pinned_;
  parked_.Append(entries_, index, leased ? DeadlineKey(entry.deadline) : kPinnedKey);
}

void IndexShard::UnparkExpired(MonotonicTime now) {
  leases_.PassTo(now);
  while (parked_.FirstKey() <= DeadlineKey(now.nanoseconds())) {
    const EntryIndex index = parked_.First();
    if (Parkable(entries_[index], now)) {
      Park(index, now);
    } else {
      Unlist(index);
      List(index);
    }
  }
}

// The key of the order's first entry that may leave now; what is held before it is parked, so that no scan meets it
// again.
OrderKey IndexShard::FirstFree(BucketOrder& order, MonotonicTime now) {
  while (!order.empty() && Parkable(entries_[order.First()], now)) Park(order.First(), now);
  return order.FirstKey();
}

OrderKey IndexShard::PeekColdest(int size_class, MonotonicTime now) {
  UnparkExpired(now);
  if (size_class >= 0) return FirstFree(candidates_[static_cast<size_t>(size_class)], now);
  OrderKey coldest = kNoOrderKey;
  for (size_t at = 0; at < classes_used_; ++at) {
    BucketOrder& order = candidates_[at];
    if (!order.empty()) coldest = std::min(coldest, FirstFree(order, now));
  }
  return coldest;
}

void IndexShard::TakeColdest(int size_class, OrderKey limit, size_t max, int64_t bytes_goal, MonotonicTime now,
                             std::vector<Doomed>& victims) {
  int64_t bytes = 0;
  UnparkExpired(now);
  for (size_t taken = 0; taken < max && bytes < bytes_goal; ++taken) {
    BucketOrder* coldest = nullptr;
    OrderKey coldest_key = kNoOrderKey;
    for (size_t at = 0; at < classes_used_; ++at) {
      if (candidates_[at].empty() || (size_class >= 0 && at != static_cast<size_t>(size_class))) continue;
      const OrderKey key = FirstFree(candidates_[at], now);
      if (key >= coldest_key) continue;
      coldest = &candidates_[at];
      coldest_key = key;
    }
    if (coldest == nullptr || coldest_key > limit) return;
    const EntryIndex victim = coldest->First();
    ++entries_[victim].pins;
    victims.push_back(Bury(victim, Death::kEvicted));
    bytes += victims.back().size;
  }
}

void IndexShard::CollectColdest(int except_class, size_t max, MonotonicTime now, std::vector<Cold>& out) {
  UnparkExpired(now);
  for (size_t at = 0; at < classes_used_; ++at) {
    BucketOrder& order = candidates_[at];
    if (order.empty() || static_cast<int>(at) == except_class) continue;
    const OrderKey key = FirstFree(order, now);
    EntryIndex index = order.First();
    for (size_t taken = 0; taken < max && index != kNoEntry; ++taken, index = entries_[index].next) {
      out.push_back({key, entries_[index].slab});
    }
  }
}

IndexShard::Inspection IndexShard::Inspect(EntryIndex index, MonotonicTime now, size_t children_max) const {
  const Entry& entry = entries_[index];
  Inspection inspection;
  if (entry.state == EntryState::kFree || entry.state == EntryState::kDead) {
    // A dead one that is still read holds its slot.
    if (entry.state == EntryState::kDead) inspection.verdict = Inspection::Verdict::kHeld;
    return inspection;
  }
  inspection.entry = {index, entry.generation};
  inspection.verdict = Inspection::Verdict::kHeld;
  if (entry.state != EntryState::kVisible || entry.pins > 0) return inspection;
  if (Leased(entry, now)) {
    inspection.deadline = entry.deadline;
    return inspection;
  }
  inspection.verdict = Inspection::Verdict::kFree;
  inspection.parent = entry.parent;
  inspection.depth = entry.depth;
  inspection.rank = entry.rank;
  for (EntryIndex child = entry.first_child; child != kNoEntry; child = entries_[child].next_sibling) {
    if (inspection.children.size() > children_max) break;
    inspection.children.push_back(child);
  }
  return inspection;
}

std::vector<EntryId> IndexShard::Everything(std::optional<NamespaceId> name_space) const {
  std::vector<EntryId> found;
  for (int64_t at = 0; at < fresh_; ++at) {
    const EntryIndex index = options_.first_entry + static_cast<EntryIndex>(at);
    const Entry& entry = entries_[index];
    if (entry.state != EntryState::kVisible && entry.state != EntryState::kWaiting) continue;
    if (name_space.has_value() && entry.name_space != name_space->value()) continue;
    found.push_back({index, entry.generation});
  }
  return found;
}

HeldCounts IndexShard::HeldInTheWay() const {
  return {.leased = parked_.size() - parked_pinned_,
          .pinned = parked_pinned_,
          .writing = counters_.writing,
          .waiting = counters_.waiting,
          .parents = counters_.parents};
}

HeldCounts IndexShard::Held(MonotonicTime now) {
  leases_.PassTo(now);
  return {.leased = leases_.leased(),
          .pinned = pinned_,
          .writing = counters_.writing,
          .waiting = counters_.waiting,
          .parents = counters_.parents};
}

int64_t IndexShard::NextParkedDeadline() const {
  if (parked_.empty() || parked_.FirstKey() == kPinnedKey) return INT64_MAX;
  return static_cast<int64_t>(parked_.FirstKey() ^ 0x8000'0000'0000'0000u);
}

size_t IndexShard::index_bytes() const {
  size_t bytes = table_.bytes() + parked_.bytes() + leases_.bytes() + sizeof(*this);
  bytes += static_cast<size_t>(options_.grows ? fresh_ : options_.entries_max) * sizeof(Entry);
  for (const BucketOrder& order : candidates_) bytes += order.bytes();
  return bytes;
}

}  // namespace tenure::store
