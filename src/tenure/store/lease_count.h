// How many objects of a shard are leased, although a lease ends by time without any event: objects counted by their
// deadline. Part of a shard: one thread at a time.
//
// The clock of the count only moves forward: an object is in it while its deadline is later than the latest time seen.
// Objects of one call have one deadline, so a change costs a look at the tree once for each run of equal deadlines.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/container/btree_map.h"
#include "tenure/base/check.h"
#include "tenure/base/clock.h"

namespace tenure::store {

class LeaseCount {
 public:
  int64_t leased() const { return leased_; }

  // From here on, what had a deadline of at most `now` is not leased. A call with an earlier time changes nothing.
  void PassTo(MonotonicTime now) {
    now_ = std::max(now_, now.nanoseconds());
    while (!by_deadline_.empty() && by_deadline_.begin()->first <= now_) {
      leased_ -= by_deadline_.begin()->second;
      by_deadline_.erase(by_deadline_.begin());
    }
  }

  // One object's deadline, in nanoseconds, was `before` and is `after`; INT64_MIN for none.
  void Move(int64_t before, int64_t after) {
    if (before == after) return;
    if (before == run_before_ && after == run_after_) {
      ++run_;
      return;
    }
    Settle();
    run_before_ = before;
    run_after_ = after;
    run_ = 1;
  }
  // After the last Move of a call.
  void Settle() {
    if (run_ == 0) return;
    if (run_before_ > now_) Take();
    if (run_after_ > now_) Give();
    run_ = 0;
  }

  size_t bytes() const { return by_deadline_.size() * sizeof(*by_deadline_.begin()); }

 private:
  void Take() {
    const auto found = by_deadline_.find(run_before_);
    TENURE_CHECK(found != by_deadline_.end() && found->second >= run_);
    found->second -= run_;
    leased_ -= run_;
    if (found->second == 0) by_deadline_.erase(found);
  }
  // Mostly the latest deadline so far.
  void Give() {
    by_deadline_.try_emplace(by_deadline_.end(), run_after_, 0)->second += run_;
    leased_ += run_;
  }

  absl::btree_map<int64_t, int64_t> by_deadline_;
  int64_t now_ = INT64_MIN;
  int64_t leased_ = 0;
  int64_t run_before_ = INT64_MIN;
  int64_t run_after_ = INT64_MIN;
  int64_t run_ = 0;  // Moves of that kind that are not in the tree yet.
};

}  // namespace tenure::store
