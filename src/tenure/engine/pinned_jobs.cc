#include "tenure/engine/pinned_jobs.h"

#include <unordered_set>
#include <utility>

#include "tenure/base/log.h"

namespace tenure::engine {

std::vector<BlockId> BlocksToPin(const kv::CacheConfig& config, const SaveOrder& order) {
  std::vector<BlockId> blocks;
  std::unordered_set<BlockId> seen = {kNullBlock};
  for (const BoundaryPut& put : order.boundary_puts) {
    if (seen.insert(put.block).second) blocks.push_back(put.block);
  }
  if (order.length == Tokens()) return blocks;
  for (size_t g = 0; g < order.blocks.size(); ++g) {
    if (config.groups()[g].kind == kv::GroupKind::kState) continue;
    for (const BlockId block : order.blocks[g]) {
      if (seen.insert(block).second) blocks.push_back(block);
    }
  }
  return blocks;
}

void PinnedJobs::Pin(uint64_t job, std::vector<BlockId> blocks) {
  if (!blocks.empty()) jobs_.emplace(job, Job{std::move(blocks), workers_});
}

std::vector<BlockId> PinnedJobs::Complete(uint64_t job, int64_t count) {
  if (job >= next_job_) LogWarning("a worker reports save job {}, which was never ordered; is it of this engine?", job);
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return {};
  found->second.waiting_for -= count;
  if (found->second.waiting_for > 0) return {};
  if (found->second.waiting_for < 0) {
    LogWarning("save job {} was reported by more than the {} workers that there are; check world_size", job, workers_);
  }
  std::vector<BlockId> blocks = std::move(found->second.blocks);
  jobs_.erase(found);
  return blocks;
}

}  // namespace tenure::engine
