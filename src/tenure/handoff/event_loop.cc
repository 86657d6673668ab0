#include "tenure/handoff/event_loop.h"

#include <algorithm>
#include <utility>

namespace tenure::handoff {
namespace {

// A clock that is moved by hand wakes nobody.
constexpr absl::Duration kLookMax = absl::Milliseconds(50);

}  // namespace

void EventLoop::Start(OnTime on_time) {
  on_time_ = std::move(on_time);
  thread_ = std::thread([this] { Run(); });
}

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.SignalOne();
}

bool EventLoop::TryPost(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopped_ || tasks_.size() >= tasks_max_) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.SignalOne();
  return true;
}

void EventLoop::Run() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    mutex_.Unlock();
    const MonotonicTime now = clock_.Now();
    const MonotonicTime next = on_time_(now);
    mutex_.Lock();
    if (tasks_.empty() && !stopped_ && next > now) wake_.WaitFor(mutex_, std::min(next - now, kLookMax));
    std::deque<Task> tasks = std::exchange(tasks_, {});
    while (!tasks.empty() && !stopped_) {
      mutex_.Unlock();
      tasks.front()();
      tasks.pop_front();
      mutex_.Lock();
    }
  }
}

}  // namespace tenure::handoff
