// Virtual time for simulations of several processes: events in order, processes that stand still or end.
//
// One thread. Events of one time run in the order in which they were made.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/clock.h"

namespace tenure::pd {

// What runs in it waits while it stands still, and never happens once it has ended.
struct WorldProcess {
  MonotonicTime still_until = MonotonicTime::Min();
  uint64_t life = 0;  // Counted up by its end.
};

class EventLoop {
 public:
  MonotonicTime now() const { return now_; }

  void After(absl::Duration delay, std::function<void()> action) { Add(now_ + delay, std::move(action)); }
  void After(absl::Duration delay, WorldProcess& process, std::function<void()> action) {
    Add(now_ + delay, InProcess(process, process.life, std::move(action)));
  }

  // Until nothing is left or time has reached `end`.
  void Run(MonotonicTime end, const std::function<bool()>& goes_on) {
    while (!events_.empty() && events_.top().at < end && goes_on()) {
      // The queue shows its first element const so that its order stays; it is popped next.
      const std::function<void()> action = std::move(const_cast<Event&>(events_.top()).action);
      now_ = events_.top().at;
      events_.pop();
      action();
    }
  }

 private:
  struct Event {
    MonotonicTime at;
    uint64_t order;
    std::function<void()> action;
    friend bool operator<(const Event& a, const Event& b) {  // The queue's top is its largest.
      return std::pair(b.at, b.order) < std::pair(a.at, a.order);
    }
  };

  void Add(MonotonicTime at, std::function<void()> action) { events_.push({at, ++last_order_, std::move(action)}); }
  std::function<void()> InProcess(WorldProcess& process, uint64_t life, std::function<void()> action) {
    return [this, &process, life, action = std::move(action)]() mutable {
      if (process.life != life) return;
      if (process.still_until > now_) return Add(process.still_until, InProcess(process, life, std::move(action)));
      action();
    };
  }

  MonotonicTime now_ = MonotonicTime::FromNanoseconds(1'000'000'000);
  uint64_t last_order_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace tenure::pd
