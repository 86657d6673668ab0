// The worker side of the store connector: one of these lives in each process that holds KV, with threads of its own.
//
// The engine's thread hands it the scheduler's plans and takes its reports; none of that waits for a pool. What it is
// made from outlives it: the pool, the copier and the clock. Submit calls come from one thread; everything else from
// any.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/engine/load_worker.h"
#include "tenure/engine/save_worker.h"
#include "tenure/engine/worker_context.h"

namespace tenure::engine {

struct StoreWorkerOptions {
  kv::CacheConfig config;
  connector::GroupNamespaces namespaces;  // This rank's: a list a group, a namespace a shard.
  int32_t tp_rank = 0;                    // At least 0.
  std::vector<int32_t> stripes = {};      // Ranks with the same bytes of each group, at least 1.
  std::optional<Tokens> retention = {};   // Absent: dense; 0: replay boundaries only; else a multiple of B.
  bool can_put = true;                    // False: saves are reported as done at once.
  int load_threads = 1;                   // At most LoadWorker::kThreadsMax.
  absl::Duration load_deadline = absl::Seconds(5);
  bool events = false;                   // Report what was stored, chunk by chunk.
  Bytes batch_bytes{int64_t{64} << 20};  // Of one call of the pool, and of each thread's staging memory.
};

class StoreWorker {
 public:
  // InvalidArgument names the option and what to give: as many namespaces, stripes and pieces as the config has groups,
  // as many namespaces as shards.
  static absl::StatusOr<std::unique_ptr<StoreWorker>> Create(StoreWorkerOptions options, BlockMemory memory,
                                                             store::Pool& pool, Copier& copier, const Clock& clock);
  // As Stop().
  ~StoreWorker();
  StoreWorker(const StoreWorker&) = delete;
  StoreWorker& operator=(const StoreWorker&) = delete;

  // The plan's loads (start_load_kv). `stream`: where the engine has queued what still uses the blocks.
  void StartLoads(StepPlan plan, uint64_t stream);
  // The same, and returns when they have ended: their reports are there.
  void LoadNow(StepPlan plan, uint64_t stream);
  // Everything else of the plan (wait_for_save). `stream`: where the engine has queued what writes the blocks.
  void StartSaves(StepPlan plan, uint64_t stream);

  // Loads that wait past their deadline are reported here, so an engine takes reports at every step.
  WorkerReport TakeReport();

  // Waits until nothing is loading or saving; false when that took longer than `timeout`.
  bool Drain(absl::Duration timeout);
  // Ends the threads: what nobody has begun is reported as failed loads and ended jobs, what is under way is waited
  // for, at most as long as a call of the pool takes. Idempotent; reports may still be taken. The thread of Submit.
  void Stop();

 private:
  // Never null: one that cannot be recorded fails whoever waits for it.
  std::shared_ptr<Fence> FenceOn(uint64_t stream);

  StoreWorker(StoreWorkerOptions options, BlockMemory memory, store::Pool& pool, Copier& copier, const Clock& clock);

  const StoreWorkerOptions options_;
  const BlockMemory memory_;
  ReportBox reports_;
  const WorkerContext context_;
  std::unique_ptr<LoadWorker> loader_;
  std::unique_ptr<SaveWorker> saver_;  // Null unless can_put.
};

}  // namespace tenure::engine
