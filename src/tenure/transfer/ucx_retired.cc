#include "tenure/transfer/ucx_retired.h"

#include <poll.h>

#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "tenure/base/mutex.h"
#include "tenure/base/wake_event.h"

namespace tenure::transfer {
namespace {

constexpr int kSleepMilliseconds = 1000;

struct Retired {
  std::unique_ptr<UcxWorker> worker;
  std::unique_ptr<UcxReceiver> receiver;
};

class RetiredThread {
 public:
  // What has arrived stays.
  void Stop() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.Wake();
    thread_.join();
  }

  void Take(Retired retired) {
    {
      const MutexLock lock(mutex_);
      arriving_.push_back(std::move(retired));
    }
    wake_.Wake();
  }

 private:
  void Run() {
    while (TakeArriving()) {
      bool moved = false;
      for (const Retired& retired : all_) {
        moved = retired.worker->Progress() || moved;
        retired.receiver->Sweep();
      }
      if (!moved) Sleep();
    }
  }

  // Whether to go on.
  bool TakeArriving() {
    const MutexLock lock(mutex_);
    for (Retired& retired : arriving_) all_.push_back(std::move(retired));
    arriving_.clear();
    return !stopping_;
  }

  void Sleep() {
    std::vector<pollfd> events = {{wake_.fd(), POLLIN, 0}};
    for (const Retired& retired : all_) {
      if (!retired.worker->Arm()) return;
      events.push_back({retired.worker->event_descriptor(), POLLIN, 0});
    }
    poll(events.data(), events.size(), kSleepMilliseconds);
    if ((events[0].revents & POLLIN) != 0) wake_.Clear();
  }

  const WakeEvent wake_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Retired> arriving_ ABSL_GUARDED_BY(mutex_);
  std::vector<Retired> all_;  // Of the thread.
  std::thread thread_ = std::thread([this] { Run(); });
};

}  // namespace

void RetireUcx(std::unique_ptr<UcxWorker> worker, std::unique_ptr<UcxReceiver> receiver) {
  static auto* const thread = new RetiredThread();  // Never destroyed: UCX has pointers to what it keeps.
  static const absl::Cleanup before_ucx_ends = [] { thread->Stop(); };
  thread->Take({std::move(worker), std::move(receiver)});
}

}  // namespace tenure::transfer
