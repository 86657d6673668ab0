// Runs calls that may block for a minute on a thread of their own, so that a caller waits no longer than its deadline.
//
// Mooncake's client blocks 4 to 60 s when its master or a segment's owner is gone (mooncake_store spec §2). A call that
// is late is not interrupted: it goes on, its result is dropped, and what it uses lives until it ends, since the call
// owns it. Calls of one lane run one at a time, in order; those whose caller has given up before their turn are
// skipped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::python {

class CallLane {
 public:
  // Callers that wait at one time; one more is refused at once.
  static constexpr size_t kWaitingMax = 256;

  explicit CallLane(std::string name);
  ~CallLane() { Stop(); }
  CallLane(const CallLane&) = delete;
  CallLane& operator=(const CallLane&) = delete;

  // A call on its way; of this file's source alone.
  struct Call;

  // Runs `call` and returns its status, or Unavailable when `timeout` passes first. `call` must own all that it
  // touches; the caller may read its results only when this returns OK.
  absl::Status Run(absl::Duration timeout, std::function<absl::Status()> call);
  // Run in two steps, for callers that have something to do meanwhile. Every call that was started is awaited, once.
  absl::StatusOr<std::shared_ptr<Call>> Start(std::function<absl::Status()> call);
  absl::Status Await(const std::shared_ptr<Call>& call, absl::Duration timeout);

  // Calls that wait and later ones are refused. Waits at most `kStopGrace` for the one that runs, and not at all for
  // one that is late already; then its thread is left to end by itself. Idempotent; callers of Run must be gone before
  // the destructor, not before this.
  void Stop();

  // Whether the call that runs is late: those behind it will be too.
  bool IsStuck() const;

  static constexpr std::chrono::seconds kStopGrace{2};

 private:
  struct Shared;
  static void Serve(const std::shared_ptr<Shared>& shared);
  void StopOnce();

  const std::shared_ptr<Shared> shared_;
  std::once_flag stop_once_;
  std::thread thread_;
};

}  // namespace tenure::python
