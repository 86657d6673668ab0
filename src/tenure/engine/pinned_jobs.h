// Save jobs and the engine's blocks that each keeps pinned until every worker has reported it. One thread at a time.
// Source: store_connector spec §6.1.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tenure/engine/step_plan.h"
#include "tenure/kv/cache_config.h"

namespace tenure::engine {

// The blocks of its boundary puts, then, when it saves whole blocks too, every block of the groups that are not states:
// a worker may go on from far below the order's length. None twice, no null block.
std::vector<BlockId> BlocksToPin(const kv::CacheConfig& config, const SaveOrder& order);

class PinnedJobs {
 public:
  explicit PinnedJobs(int workers) : workers_(workers) {}

  // Ids ascend and are never used again.
  uint64_t NewJob() { return next_job_++; }
  // A job without blocks is not kept: nothing waits for its end.
  void Pin(uint64_t job, std::vector<BlockId> blocks);
  // `count` more workers have done it. The blocks to unpin when they were the last; nothing while others are at work
  // and for a job that is not kept. A job that never was, and more reports than workers, are logged.
  std::vector<BlockId> Complete(uint64_t job, int64_t count);
  size_t size() const { return jobs_.size(); }

 private:
  struct Job {
    std::vector<BlockId> blocks;
    int64_t waiting_for = 0;
  };
  int workers_;
  uint64_t next_job_ = 1;
  std::map<uint64_t, Job> jobs_;
};

}  // namespace tenure::engine
