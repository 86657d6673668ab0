// Runs calls whose callers wait for their end, however late it is: as many at one time as there are callers, so that
// one that is late holds no other.
//
// Thread-safe. Why a caller would wait: direct_mooncake.h. Callers with deadlines use call_lane.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace tenure::python {

class CallThreads {
 public:
  // Calls at one time, each on a thread that is kept for later ones; one more is refused at once.
  static constexpr size_t kThreadsMax = 128;

  explicit CallThreads(std::string name);
  ~CallThreads() { Stop(); }
  CallThreads(const CallThreads&) = delete;
  CallThreads& operator=(const CallThreads&) = delete;

  // Runs `call` and returns its status: it has ended, or has not begun. Where Stop left it behind, it is Unavailable
  // and the call may still run, so `call` must own all that it touches.
  absl::Status Run(std::function<absl::Status()> call);

  // Refuses later calls and waits at most CallLane::kStopGrace for those that run; then all threads are left to end by
  // themselves. Idempotent; callers of Run must be gone before the destructor, not before this.
  void Stop();

 private:
  struct Shared;
  static void Serve(const std::shared_ptr<Shared>& shared);
  void StopOnce();

  const std::shared_ptr<Shared> shared_;
  std::once_flag stop_once_;
};

}  // namespace tenure::python
