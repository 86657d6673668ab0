// A lease on objects of a pool: move-only, ended by Release(), by its destructor, or by its deadline.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tenure/base/clock.h"

namespace tenure::store {

// An entry of a pool's index: names one object for its whole life and never a later one in the same place.
struct EntryRef {
  uint32_t shard = 0;
  uint32_t index = 0;
  uint32_t generation = 0;
  friend auto operator<=>(const EntryRef&, const EntryRef&) = default;
};

class LeaseReleaser {
 public:
  virtual ~LeaseReleaser() = default;

 private:
  friend class Lease;
  // Takes one holder off each entry that still is the same object, unless `deadline` has passed; an entry without
  // holders is no longer leased (rule 7).
  virtual void ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) = 0;
};

class Lease {
 public:
  Lease() = default;  // Holds nothing.
  Lease(LeaseReleaser* pool, std::vector<EntryRef> entries, MonotonicTime deadline)
      : pool_(pool), entries_(std::move(entries)), deadline_(deadline) {}
  Lease(Lease&& other) noexcept { Swap(other); }
  Lease& operator=(Lease&& other) noexcept {
    Lease moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~Lease() { Release(); }

  // Idempotent.
  void Release() {
    if (pool_ != nullptr && !entries_.empty()) pool_->ReleaseLease(entries_, deadline_);
    pool_ = nullptr;
    entries_.clear();
  }
  // Lets the lease run out by its deadline instead of ending it now.
  void Forget() {
    pool_ = nullptr;
    entries_.clear();
  }

  MonotonicTime deadline() const { return deadline_; }
  // Objects held; an object named twice in the call counts twice.
  size_t size() const { return entries_.size(); }

 private:
  void Swap(Lease& other) {
    std::swap(pool_, other.pool_);
    std::swap(entries_, other.entries_);
    std::swap(deadline_, other.deadline_);
  }

  LeaseReleaser* pool_ = nullptr;
  std::vector<EntryRef> entries_;
  MonotonicTime deadline_;
};

}  // namespace tenure::store
