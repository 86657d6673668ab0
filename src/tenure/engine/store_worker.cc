#include "tenure/engine/store_worker.h"

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

absl::Status CheckGroups(const StoreWorkerOptions& options, const BlockMemory& memory) {
  const size_t groups = options.config.groups().size();
  if (memory.groups() != groups || options.namespaces.size() != groups || options.stripes.size() != groups) {
    return InvalidArgument("the config has {} groups, pieces {}, namespaces {} and stripes {}; give one entry a group",
                           groups, memory.groups(), options.namespaces.size(), options.stripes.size());
  }
  for (size_t g = 0; g < groups; ++g) {
    const int32_t shards = memory.shards(kv::GroupIndex(static_cast<int32_t>(g)));
    if (options.namespaces[g].size() != static_cast<size_t>(shards)) {
      return InvalidArgument("namespaces[{}] has {} entries and pieces[{}] {} shards; give a namespace a shard", g,
                             options.namespaces[g].size(), g, shards);
    }
    if (options.stripes[g] < 1) return InvalidArgument("stripes[{}] is {}; use at least 1", g, options.stripes[g]);
  }
  return absl::OkStatus();
}

// Nobody knows what the engine does to the blocks, so they are not touched: the step's loads or saves fail.
class LostFence final : public Fence {
 public:
  explicit LostFence(absl::Status why) : why_(std::move(why)) {}
  absl::Status Wait() override { return why_; }

 private:
  const absl::Status why_;
};

absl::Status Check(const StoreWorkerOptions& options, const BlockMemory& memory) {
  TENURE_RETURN_IF_ERROR(CheckGroups(options, memory));
  const Tokens block = options.config.scheduler_block_size();
  const Tokens retention = options.retention.value_or(Tokens(0));
  if (retention < Tokens(0) || retention % block != Tokens(0)) {
    return InvalidArgument("retention is {}; use None, 0 or a multiple of the scheduler block size {}",
                           retention.value(), block.value());
  }
  if (options.tp_rank < 0) return InvalidArgument("tp_rank is {}; use at least 0", options.tp_rank);
  if (options.batch_bytes < Bytes(1)) {
    return InvalidArgument("batch_bytes is {}; use at least 1", options.batch_bytes.value());
  }
  return absl::OkStatus();
}

}  // namespace

StoreWorker::StoreWorker(StoreWorkerOptions options, BlockMemory memory, store::Pool& pool, Copier& copier,
                         const Clock& clock)
    : options_(std::move(options)),
      memory_(std::move(memory)),
      context_{.config = options_.config,
               .pool = pool,
               .memory = memory_,
               .namespaces = options_.namespaces,
               .copier = copier,
               .reports = reports_,
               .clock = clock,
               .tp_rank = options_.tp_rank,
               .batch_bytes = std::max(options_.batch_bytes, memory_.object_bytes_max())} {}

absl::StatusOr<std::unique_ptr<StoreWorker>> StoreWorker::Create(StoreWorkerOptions options, BlockMemory memory,
                                                                 store::Pool& pool, Copier& copier,
                                                                 const Clock& clock) {
  TENURE_RETURN_IF_ERROR(Check(options, memory));
  std::unique_ptr<StoreWorker> worker(new StoreWorker(std::move(options), std::move(memory), pool, copier, clock));
  const StoreWorkerOptions& kept = worker->options_;
  TENURE_ASSIGN_OR_RETURN(worker->loader_, LoadWorker::Create(worker->context_, {.threads = kept.load_threads,
                                                                                 .deadline = kept.load_deadline}));
  if (!kept.can_put) return worker;
  const SaveListOptions list{.retention = kept.retention, .stripes = kept.stripes, .tp_rank = kept.tp_rank};
  TENURE_ASSIGN_OR_RETURN(worker->saver_, SaveWorker::Create(worker->context_, {.list = list, .events = kept.events}));
  return worker;
}

StoreWorker::~StoreWorker() { Stop(); }

void StoreWorker::StartLoads(StepPlan plan, uint64_t stream) {
  if (!plan.loads.empty()) loader_->Submit(std::move(plan.loads), FenceOn(stream));
}

void StoreWorker::LoadNow(StepPlan plan, uint64_t stream) {
  if (!plan.loads.empty()) loader_->LoadNow(std::move(plan.loads), FenceOn(stream));
}

std::shared_ptr<Fence> StoreWorker::FenceOn(uint64_t stream) {
  absl::StatusOr<std::shared_ptr<Fence>> recorded = context_.copier.RecordFence(stream);
  return recorded.ok() ? *std::move(recorded) : std::make_shared<LostFence>(recorded.status());
}

void StoreWorker::StartSaves(StepPlan plan, uint64_t stream) {
  if (saver_ == nullptr) {
    for (const SaveOrder& order : plan.saves) reports_.AddSaved(order.job);
    return;
  }
  std::shared_ptr<Fence> fence;
  if (!plan.saves.empty()) fence = FenceOn(stream);
  saver_->Submit(std::move(plan), fence);
}

WorkerReport StoreWorker::TakeReport() {
  loader_->FailLate();
  return reports_.Take();
}

bool StoreWorker::Drain(absl::Duration timeout) {
  const MonotonicTime deadline = context_.clock.Now() + timeout;
  return loader_->WaitUntilIdle(deadline) && (saver_ == nullptr || saver_->WaitUntilIdle(deadline));
}

void StoreWorker::Stop() {
  if (loader_ != nullptr) loader_->Stop();  // Null when Create has failed.
  if (saver_ != nullptr) saver_->Stop();
}

}  // namespace tenure::engine
