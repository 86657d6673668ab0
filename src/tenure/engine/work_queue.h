// A queue of work between the engine's thread and the threads of a worker, with a maximum, an end, and a way to wait
// until nothing is left. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"

namespace tenure::engine {

template <typename Item>
class WorkQueue {
 public:
  explicit WorkQueue(size_t items_max) : items_max_(items_max) {}

  // False, and `item` is unchanged, when the queue is full or stopped.
  bool Push(Item& item) {
    MutexLock lock(mutex_);
    if (stopped_ || items_.size() >= items_max_) return false;
    items_.push_back(std::move(item));
    ready_.SignalOne();
    return true;
  }

  // Waits for the next item, which is under way until Done(); none once the queue is stopped.
  std::optional<Item> Pop() {
    MutexLock lock(mutex_);
    while (items_.empty() && !stopped_) ready_.Wait(mutex_);
    if (stopped_) return std::nullopt;
    std::optional<Item> item(std::move(items_.front()));
    items_.pop_front();
    ++under_way_;
    return item;
  }
  void Done() {
    MutexLock lock(mutex_);
    --under_way_;
    idle_.SignalAll();
  }

  // Takes out what nobody has begun and `predicate` is true of, oldest first.
  template <typename Predicate>
  std::deque<Item> TakeIf(Predicate predicate) {
    MutexLock lock(mutex_);
    std::deque<Item> taken, left;
    for (Item& item : items_) (predicate(std::as_const(item)) ? taken : left).push_back(std::move(item));
    items_.swap(left);
    if (items_.empty()) idle_.SignalAll();
    return taken;
  }

  // True once nothing waits or is under way; false when `clock` has reached `deadline` first.
  bool WaitUntilIdle(const Clock& clock, MonotonicTime deadline) {
    MutexLock lock(mutex_);
    while (!items_.empty() || under_way_ > 0) {
      const absl::Duration left = deadline - clock.Now();
      if (left <= absl::ZeroDuration()) return false;
      idle_.WaitFor(mutex_, std::min(left, absl::Minutes(1)));
    }
    return true;
  }

  // Ends every Pop, now and later; gives back what nobody began.
  std::deque<Item> Stop() {
    MutexLock lock(mutex_);
    stopped_ = true;
    ready_.SignalAll();
    std::deque<Item> left;
    left.swap(items_);
    idle_.SignalAll();
    return left;
  }

 private:
  const size_t items_max_;
  Mutex mutex_;
  CondVar ready_;
  CondVar idle_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tenure::engine
