// Collects what other threads tell and lets a test wait for it. For tests only.
#pragma once

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"

namespace tenure::handoff {

template <typename Item>
class Recorder {
 public:
  // Far above what a loaded machine needs; a test that waits this long has failed.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  void Add(Item item) {
    MutexLock lock(mutex_);
    items_.push_back(std::move(item));
    added_.SignalAll();
  }

  // What has come once `holds(items)`, or after kPatience, which the caller's expectations then show.
  template <typename Holds>
  std::vector<Item> WaitUntil(Holds holds) {
    const MonotonicClock clock;
    const MonotonicTime end = clock.Now() + kPatience;
    MutexLock lock(mutex_);
    while (!holds(items_) && clock.Now() < end) added_.WaitFor(mutex_, absl::Milliseconds(100));
    return items_;
  }
  std::vector<Item> WaitFor(size_t count) {
    return WaitUntil([count](const std::vector<Item>& items) { return items.size() >= count; });
  }
  std::vector<Item> items() { return WaitFor(0); }

 private:
  Mutex mutex_;
  CondVar added_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
};

// Waits for a state that no event tells of, and looks every millisecond. Whether it has come.
template <typename Holds>
bool WaitUntil(Holds holds, absl::Duration patience = Recorder<int>::kPatience) {
  const MonotonicClock clock;
  const MonotonicTime end = clock.Now() + patience;
  Mutex mutex;
  CondVar nobody_signals;
  while (!holds()) {
    if (clock.Now() >= end) return false;
    MutexLock lock(mutex);
    nobody_signals.WaitFor(mutex, absl::Milliseconds(1));
  }
  return true;
}

}  // namespace tenure::handoff
