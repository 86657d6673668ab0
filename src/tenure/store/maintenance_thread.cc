#include "tenure/store/maintenance_thread.h"

namespace tenure::store {

MaintenanceThread::MaintenanceThread(EmbeddedPool& pool, absl::Duration period)
    : pool_(pool), period_(period), thread_([this] { Run(); }) {}

MaintenanceThread::~MaintenanceThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MaintenanceThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const bool more = pool_.Maintain();
    lock.lock();
    if (!more) wake_.wait_for(lock, absl::ToChronoNanoseconds(period_), [this] { return stopping_; });
  }
}

}  // namespace tenure::store
