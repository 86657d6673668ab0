// Objects that are complete, or being written, but whose parent is not there: who waits for which key, and until when.
//
// Part of a shard: one thread at a time. Two halves that meet different keys: a shard knows who waits for ITS keys
// (`Register`, `Take`), and of ITS waiting objects what they wait for and until when (`Add`, `Drop`, `Expired`).
// Bounded by the pool's waiting share.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tenure/kv/object_key.h"
#include "tenure/store/index_entry.h"

namespace tenure::store {

// An entry as it was at one time; `generation` tells whether it still is.
struct EntryId {
  EntryIndex index = kNoEntry;
  uint32_t generation = 0;
  friend bool operator==(const EntryId&, const EntryId&) = default;
};

// Who waits, and for which key.
struct WaitingChild {
  kv::ObjectKey parent;
  EntryId child;
};

class WaitingPuts {
 public:
  // Children of keys of this shard.
  void Register(const kv::ObjectKey& parent, EntryId child) { children_[parent].push_back(child); }
  std::vector<WaitingChild> Take(const kv::ObjectKey& parent) {
    std::vector<WaitingChild> taken;
    const auto found = children_.find(parent);
    if (found == children_.end()) return taken;
    for (const EntryId child : found->second) taken.push_back({parent, child});
    children_.erase(found);
    return taken;
  }
  bool AnyoneWaits() const { return !children_.empty(); }
  void Unregister(const kv::ObjectKey& parent, EntryId child) {
    const auto found = children_.find(parent);
    if (found == children_.end()) return;
    std::erase(found->second, child);
    if (found->second.empty()) children_.erase(found);
  }

  // Objects of this shard.
  void Add(EntryIndex entry, const kv::ObjectKey& parent) { waits_[entry] = Wait{parent, INT64_MAX}; }
  void SetDeadline(EntryIndex entry, int64_t deadline) {
    waits_.at(entry).deadline = deadline;
    deadlines_.emplace(deadline, entry);
  }
  kv::ObjectKey ParentOf(EntryIndex entry) const { return waits_.at(entry).parent; }
  int64_t DeadlineOf(EntryIndex entry) const { return waits_.at(entry).deadline; }
  void Drop(EntryIndex entry) {
    const auto found = waits_.find(entry);
    if (found == waits_.end()) return;
    for (auto [at, end] = deadlines_.equal_range(found->second.deadline); at != end; ++at) {
      if (at->second != entry) continue;
      deadlines_.erase(at);
      break;
    }
    waits_.erase(found);
  }
  // Those with a deadline of at most `now`, earliest first.
  std::vector<EntryIndex> Expired(int64_t now) const {
    std::vector<EntryIndex> expired;
    for (auto at = deadlines_.begin(); at != deadlines_.end() && at->first <= now; ++at) expired.push_back(at->second);
    return expired;
  }
  bool HasDeadlines() const { return !deadlines_.empty(); }

 private:
  struct Wait {
    kv::ObjectKey parent;
    int64_t deadline;  // Nanoseconds; INT64_MAX while it is being written.
  };

  std::map<kv::ObjectKey, std::vector<EntryId>> children_;
  std::map<EntryIndex, Wait> waits_;
  std::multimap<int64_t, EntryIndex> deadlines_;
};

}  // namespace tenure::store
