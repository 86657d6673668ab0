// Keeps a repeated failure from filling the log: one line a period. Thread-safe.
#pragma once

#include <atomic>

#include "absl/time/time.h"
#include "tenure/base/clock.h"

namespace tenure::engine {

class LogPace {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  explicit LogPace(const Clock& clock) : clock_(clock) {}

  // Whether to log now.
  bool Allows() {
    const int64_t now = clock_.Now().nanoseconds();
    int64_t next = next_.load(std::memory_order_relaxed);
    return now >= next &&
           next_.compare_exchange_strong(next, now + absl::ToInt64Nanoseconds(kPeriod), std::memory_order_relaxed);
  }

 private:
  const Clock& clock_;
  std::atomic<int64_t> next_{INT64_MIN};
};

}  // namespace tenure::engine
