#include "bindings/call_threads.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <utility>

#include "bindings/call_lane.h"
#include "bindings/left_behind.h"
#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::python {
namespace {

struct Waiting {
  std::function<absl::Status()> call;
  bool has_begun = false;
  bool is_done = false;
  absl::Status status;
};

}  // namespace

// Outlives the owner when its threads do. A std condition variable, as call_lane.cc has it.
struct CallThreads::Shared {
  std::string name;
  std::mutex mutex;
  std::condition_variable work;                // For the threads: a call, or the end.
  std::condition_variable ended;               // For the callers: some call is done, or the end.
  std::deque<std::shared_ptr<Waiting>> queue;  // Never longer than the threads that are free.
  std::vector<std::thread> threads;
  size_t running = 0;
  bool stopping = false;
  bool left_behind = false;
};

CallThreads::CallThreads(std::string name) : shared_(std::make_shared<Shared>()) { shared_->name = std::move(name); }

absl::Status CallThreads::Run(std::function<absl::Status()> call) {
  Shared& shared = *shared_;
  const auto waiting = std::make_shared<Waiting>();
  waiting->call = std::move(call);
  std::unique_lock lock(shared.mutex);
  if (shared.stopping) return Unavailable("{}: the pool is closed", shared.name);
  if (shared.running + shared.queue.size() == shared.threads.size()) {
    if (shared.threads.size() == kThreadsMax) {
      return Unavailable("{}: {} calls run already; the store does not keep up", shared.name, kThreadsMax);
    }
    shared.threads.emplace_back([shared = shared_] { Serve(shared); });
  }
  shared.queue.push_back(waiting);
  shared.work.notify_one();
  shared.ended.wait(lock,
                    [&] { return waiting->is_done || shared.left_behind || (shared.stopping && !waiting->has_begun); });
  if (waiting->is_done) return waiting->status;
  return Unavailable("{}: the pool is closed", shared.name);
}

void CallThreads::Serve(const std::shared_ptr<Shared>& shared) {
  MarkLeavable();
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->work.wait(lock, [&shared] { return shared->stopping || !shared->queue.empty(); });
    if (shared->stopping) return;
    const std::shared_ptr<Waiting> waiting = std::move(shared->queue.front());
    shared->queue.pop_front();
    waiting->has_begun = true;
    ++shared->running;
    lock.unlock();
    absl::Status status;
    try {
      status = waiting->call();
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    waiting->call = nullptr;  // Before its caller is told, so that nothing of it is left when the pool ends.
    lock.lock();
    --shared->running;
    waiting->status = std::move(status);
    waiting->is_done = true;
    shared->ended.notify_all();
  }
}

void CallThreads::Stop() {
  std::call_once(stop_once_, [this] { StopOnce(); });
}

void CallThreads::StopOnce() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  shared.stopping = true;
  shared.work.notify_all();
  shared.ended.notify_all();
  const bool ended = shared.ended.wait_for(lock, CallLane::kStopGrace, [&shared] { return shared.running == 0; });
  shared.left_behind = !ended;
  shared.ended.notify_all();
  std::vector<std::thread> threads;
  threads.swap(shared.threads);
  const size_t running = shared.running;
  lock.unlock();
  if (!ended) {
    LogWarning("{}: {} calls still block at the end of the pool; their threads are left behind", shared.name, running);
    LeaveMarkedThreads();
  }
  for (std::thread& thread : threads) ended ? thread.join() : thread.detach();
}

}  // namespace tenure::python
