// Work for the one thread that owns a transport.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "tenure/base/mutex.h"
#include "tenure/base/wake_event.h"

namespace tenure::transfer {

class CommandQueue {
 public:
  // Without a descriptor when the process has none left.
  bool valid() const { return wake_.valid(); }
  // Readable when there are commands; Clear makes it unreadable, before RunAll.
  int fd() const { return wake_.fd(); }
  void Clear() const { wake_.Clear(); }

  // From any thread.
  void Push(std::function<void()> command) {
    {
      const MutexLock lock(mutex_);
      commands_.push_back(std::move(command));
    }
    wake_.Wake();
  }
  // Runs what was pushed before, without a lock; whether there was anything. Of the owner.
  bool RunAll() {
    std::deque<std::function<void()>> commands;
    {
      const MutexLock lock(mutex_);
      commands.swap(commands_);
    }
    for (const std::function<void()>& command : commands) command();
    return !commands.empty();
  }

 private:
  const WakeEvent wake_;
  Mutex mutex_;
  std::deque<std::function<void()>> commands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::transfer
