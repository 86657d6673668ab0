// The thread that owns a protocol core: runs what it is given, one after the other, and looks at the clock.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"

namespace tenure::handoff {

class EventLoop {
 public:
  using Task = std::function<void()>;
  // What is due by `now`; says when to be called next. Called after all tasks that wait, too.
  using OnTime = std::function<MonotonicTime(MonotonicTime now)>;

  // `clock` outlives it. `tasks_max` bounds TryPost.
  EventLoop(const Clock& clock, size_t tasks_max) : clock_(clock), tasks_max_(tasks_max) {}
  ~EventLoop() { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Once; what was posted before runs then.
  void Start(OnTime on_time);
  // Ends the thread after the task that runs. What waits is not run, and what is posted later is dropped.
  void Stop();

  // Any thread, and tasks: for events whose number the owner bounds.
  void Post(Task task);
  // The same for what others cause. False: too many wait, and `task` will not run.
  bool TryPost(Task task);

 private:
  void Run();

  const Clock& clock_;
  const size_t tasks_max_;
  OnTime on_time_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tenure::handoff
