// In which order objects leave a pool: a small pure function behind an interface, apart from the mechanism (design §4).
//
// A policy sees values and keeps no pointer to entries. Called under a shard's lock: it must not call back into the
// pool, and it must be safe to call from several threads.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/store/pool.h"

namespace tenure::store {

struct EvictionView {
  MonotonicTime written;         // When it was committed, to 64 ms.
  MonotonicTime leased;          // When it was last leased; Min() if never.
  MonotonicTime lease_deadline;  // Of its lease as extended by this one; Min() if never leased.
  Bytes size;
  int64_t depth = 0;     // Ancestors it has; 0 in an independent pool.
  int64_t children = 0;  // Children it has now.
  ObjectKind kind = ObjectKind::kOther;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The object with the earliest rank leaves first; equal 64 ms steps of rank count as equal and the deepest of them
  // leaves first. Asked when an object is committed and when it is leased. A parent that loses a child takes the later
  // of both ranks. A watermark pass takes nothing with a rank in or after the step in which it started, so that no
  // object goes in the tick it came.
  virtual MonotonicTime Rank(const EvictionView& object, MonotonicTime now) const = 0;
};

// Least recently leased first; an object that was never leased counts as leased when it was written.
std::unique_ptr<EvictionPolicy> MakeLruPolicy();
// Mooncake 0.3.14's order: by lease deadline, so that a read counts as TTL younger than a write (spec/mooncake_store.md
// §1.3).
std::unique_ptr<EvictionPolicy> MakeMooncakePolicy();

}  // namespace tenure::store
