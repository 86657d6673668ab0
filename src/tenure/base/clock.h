// Monotonic time for leases and deadlines: a real clock and one that tests and simulations move by hand.
//
// Wall time never decides about a lease. A clock is passed through constructors and outlives who uses it.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>

#include "absl/time/time.h"

namespace tenure {

// Nanoseconds since an unspecified start that is the same for one clock's life. Sums saturate at Max().
class MonotonicTime {
 public:
  constexpr MonotonicTime() = default;
  static constexpr MonotonicTime FromNanoseconds(int64_t value) { return MonotonicTime(value); }
  static constexpr MonotonicTime Max() { return MonotonicTime(INT64_MAX); }
  static constexpr MonotonicTime Min() { return MonotonicTime(INT64_MIN); }

  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  friend constexpr auto operator<=>(MonotonicTime, MonotonicTime) = default;

  friend MonotonicTime operator+(MonotonicTime time, absl::Duration duration) {
    return MonotonicTime(SaturatingAdd(time.nanoseconds_, absl::ToInt64Nanoseconds(duration)));
  }
  friend absl::Duration operator-(MonotonicTime a, MonotonicTime b) {
    return absl::Nanoseconds(a.nanoseconds_) - absl::Nanoseconds(b.nanoseconds_);
  }

 private:
  constexpr explicit MonotonicTime(int64_t nanoseconds) : nanoseconds_(nanoseconds) {}
  static int64_t SaturatingAdd(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b > 0 ? INT64_MAX : INT64_MIN;
  }

  int64_t nanoseconds_ = 0;
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
};

// CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  MonotonicTime Now() const override;
};

// Stands still until moved; may be read and moved from any thread.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(MonotonicTime start = MonotonicTime()) : nanoseconds_(start.nanoseconds()) {}
  MonotonicTime Now() const override {
    return MonotonicTime::FromNanoseconds(nanoseconds_.load(std::memory_order_acquire));
  }
  void Advance(absl::Duration by) { AdvanceTo(Now() + by); }
  // Time never runs back: an earlier `to` is ignored.
  void AdvanceTo(MonotonicTime to) {
    if (to > Now()) nanoseconds_.store(to.nanoseconds(), std::memory_order_release);
  }

 private:
  std::atomic<int64_t> nanoseconds_;
};

}  // namespace tenure
