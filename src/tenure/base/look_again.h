// Looking for an answer a little longer before going to sleep: for a processor that fell asleep, waking costs more than
// most requests (on virtual machines 40 us and more, against 5 us for a request of one key). One thread at a time.
#pragma once

#include <sched.h>

#include "absl/time/time.h"
#include "tenure/base/clock.h"

namespace tenure {

class LookAgain {
 public:
  // As long as a sleep and its end take at most, so that it never costs more than twice the better choice.
  static constexpr absl::Duration kAtMost = absl::Microseconds(100);

  explicit LookAgain(const Clock& clock) : clock_(clock) { Begin(); }

  // Something came: from now on the time counts anew.
  void Begin() { end_ = clock_.Now() + kAtMost; }
  // Whether to look once more before sleeping. Lets others that want this processor go first, for one of them may be
  // who is waited for.
  bool Worthwhile() const {
    if (clock_.Now() >= end_) return false;
    sched_yield();
    return true;
  }

 private:
  const Clock& clock_;
  MonotonicTime end_;
};

}  // namespace tenure
