// Calls Maintain() of a pool at a steady pace, so that watermark passes and expiries run off the path of puts.
//
// Owns one thread from construction to destruction; the pool outlives it.
#pragma once

#include <thread>

#include "absl/time/time.h"
#include "tenure/base/mutex.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::store {

class MaintenanceThread {
 public:
  // Ten milliseconds: at 10 GB/s of puts a pass starts at most 100 MB late, far less than the room above the high
  // watermark.
  static constexpr absl::Duration kPeriod = absl::Milliseconds(10);

  explicit MaintenanceThread(EmbeddedPool& pool, absl::Duration period = kPeriod);
  ~MaintenanceThread();
  MaintenanceThread(const MaintenanceThread&) = delete;
  MaintenanceThread& operator=(const MaintenanceThread&) = delete;

 private:
  void Run();

  EmbeddedPool& pool_;
  const absl::Duration period_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tenure::store
