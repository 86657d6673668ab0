#include "bindings/call_lane.h"

#include <atomic>
#include <exception>
#include <utility>

#include "bindings/left_behind.h"
#include "tenure/base/clock.h"
#include "tenure/base/log.h"
#include "tenure/base/look_again.h"
#include "tenure/base/status.h"

namespace tenure::python {

struct CallLane::Call {
  enum class Stage { kQueued, kRunning, kDone };

  std::function<absl::Status()> call;
  Stage stage = Stage::kQueued;
  std::atomic<bool> is_done = false;  // The same as kDone, for who looks without the mutex.
  bool abandoned = false;
  absl::Status status;
};

// Outlives the lane when its thread does. A std condition variable: base/mutex.h has no wait with an end.
struct CallLane::Shared {
  std::string name;
  std::mutex mutex;
  std::condition_variable work;   // For the thread: a call, or the end.
  std::condition_variable ended;  // For the callers: some call is done, or the thread is.
  std::deque<std::shared_ptr<Call>> queue;
  std::atomic<bool> has_work = false;  // A call was queued since the thread last looked, or the end is near.
  std::shared_ptr<Call> running;
  bool stopping = false;
  bool stopped = false;
};

CallLane::CallLane(std::string name) : shared_(std::make_shared<Shared>()) {
  shared_->name = std::move(name);
  thread_ = std::thread([shared = shared_] { Serve(shared); });
}

void CallLane::Stop() {
  std::call_once(stop_once_, [this] { StopOnce(); });
}

void CallLane::StopOnce() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->has_work = true;
  shared_->work.notify_all();
  shared_->ended.notify_all();
  // Who waits for a late call has waited its deadline out already.
  const bool is_late = shared_->running != nullptr && shared_->running->abandoned;
  const bool ended = !is_late && shared_->ended.wait_for(lock, kStopGrace, [this] { return shared_->stopped; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    LogWarning("{}: a call still blocks at the end of the pool; its thread is left behind", shared_->name);
    LeaveMarkedThreads();
    thread_.detach();
  }
}

absl::Status CallLane::Run(absl::Duration timeout, std::function<absl::Status()> call) {
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<Call> started, Start(std::move(call)));
  return Await(started, timeout);
}

absl::StatusOr<std::shared_ptr<CallLane::Call>> CallLane::Start(std::function<absl::Status()> call) {
  auto started = std::make_shared<Call>();
  started->call = std::move(call);
  const std::lock_guard lock(shared_->mutex);
  if (shared_->stopping) return Unavailable("{}: the pool is closed", shared_->name);
  if (shared_->queue.size() >= kWaitingMax) {
    return Unavailable("{}: {} calls wait already; the store does not keep up", shared_->name, kWaitingMax);
  }
  shared_->queue.push_back(started);
  shared_->has_work = true;
  shared_->work.notify_one();
  return started;
}

absl::Status CallLane::Await(const std::shared_ptr<Call>& call, absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  const MonotonicClock clock;
  for (const LookAgain look(clock); !call->is_done && look.Worthwhile();) continue;
  std::unique_lock lock(shared_->mutex);
  const auto is_over = [this, &call] {
    return call->stage == Call::Stage::kDone || (shared_->stopping && call->stage == Call::Stage::kQueued);
  };
  const bool over = shared_->ended.wait_until(lock, deadline, is_over);
  if (call->stage == Call::Stage::kDone) return call->status;
  call->abandoned = true;
  // What a call that never began holds is free now; a running one keeps what it uses.
  std::function<absl::Status()> dropped;
  if (call->stage == Call::Stage::kQueued) dropped.swap(call->call);
  lock.unlock();
  dropped = nullptr;
  if (over) return Unavailable("{}: the pool is closed", shared_->name);
  return Unavailable("{}: no answer within {} s; it counts as a miss", shared_->name, absl::ToDoubleSeconds(timeout));
}

bool CallLane::IsStuck() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->running != nullptr && shared_->running->abandoned;
}

void CallLane::Serve(const std::shared_ptr<Shared>& shared) {
  MarkLeavable();
  const MonotonicClock clock;
  std::unique_lock lock(shared->mutex);
  while (true) {
    if (shared->queue.empty() && !shared->stopping) {
      shared->has_work = false;
      lock.unlock();
      // A lookup's next call comes soon after its last.
      for (const LookAgain look(clock); !shared->has_work && look.Worthwhile();) continue;
      lock.lock();
    }
    shared->work.wait(lock, [&shared] { return shared->stopping || !shared->queue.empty(); });
    if (shared->stopping) break;
    const std::shared_ptr<Call> next = std::move(shared->queue.front());
    shared->queue.pop_front();
    if (next->abandoned) continue;
    next->stage = Call::Stage::kRunning;
    shared->running = next;
    lock.unlock();
    absl::Status status;
    try {
      status = next->call();
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    // The call's memory goes before its caller is told, so that nothing of it is left when the pool ends.
    next->call = nullptr;
    lock.lock();
    next->status = std::move(status);
    next->stage = Call::Stage::kDone;
    next->is_done = true;
    shared->running = nullptr;
    shared->ended.notify_all();
  }
  shared->stopped = true;
  shared->ended.notify_all();
}

}  // namespace tenure::python
