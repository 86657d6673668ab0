#include "tenure/store/maintenance_thread.h"

namespace tenure::store {

MaintenanceThread::MaintenanceThread(EmbeddedPool& pool, absl::Duration period)
    : pool_(pool), period_(period), thread_([this] { Run(); }) {}

MaintenanceThread::~MaintenanceThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.SignalOne();
  thread_.join();
}

void MaintenanceThread::Run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    mutex_.Unlock();
    const bool more = pool_.Maintain();
    mutex_.Lock();
    if (!more && !stopping_) wake_.WaitFor(mutex_, period_);
  }
}

}  // namespace tenure::store
