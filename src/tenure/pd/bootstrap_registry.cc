#include "tenure/pd/bootstrap_registry.h"

#include "tenure/base/status.h"
#include "tenure/pd/wire_fields.h"
#include "tenure/pd/worker_address.h"

namespace tenure::pd {
namespace {

size_t CountWorkers(const RegisteredEngine& engine) {
  size_t count = 0;
  for (const auto& [tp_rank, stages] : engine.addresses) count += stages.size();
  return count;
}

absl::Status CheckRank(std::string_view what, int64_t rank, std::optional<int64_t> size) {
  if (size && (*size < 1 || *size > BootstrapRegistry::kRanksMax)) {
    return InvalidArgument("{} is one of {}; use 1 to {}", what, *size, BootstrapRegistry::kRanksMax);
  }
  const int64_t end = size.value_or(BootstrapRegistry::kRanksMax);
  if (rank < 0 || rank >= end) return InvalidArgument("{} is {}; use 0 to {}", what, rank, end - 1);
  return absl::OkStatus();
}

absl::Status CheckWorker(const WorkerRegistration& worker) {
  if (worker.engine_id.empty()) return InvalidArgument("engine_id is empty; give the engine's id");
  TENURE_RETURN_IF_ERROR(CheckText("engine_id", worker.engine_id));
  TENURE_RETURN_IF_ERROR(CheckText("addr", worker.address));
  if (!IsWorkerAddress(worker.address)) {
    return InvalidArgument(
        "addr of dp_rank={} is not tcp://IP:PORT, with a port from 1 to 65535; give the side channel's address",
        worker.dp_rank);
  }
  TENURE_RETURN_IF_ERROR(CheckRank("dp_rank", worker.dp_rank, std::nullopt));
  TENURE_RETURN_IF_ERROR(CheckRank("tp_rank", worker.tp_rank, worker.tp_size));
  TENURE_RETURN_IF_ERROR(CheckRank("pp_rank", worker.pp_rank, worker.pp_size));
  return CheckLease("register", worker.kv_lease_duration);
}

// Whether the worker belongs to a later start than what is registered. Who does not say is of no start in particular.
bool IsNewer(const WorkerRegistration& worker, const RegisteredEngine& engine) {
  return worker.incarnation && (!engine.incarnation || *worker.incarnation > *engine.incarnation);
}

absl::Status CheckSameEngine(const WorkerRegistration& worker, const RegisteredEngine& engine) {
  if (worker.engine_id != engine.engine_id) {
    return InvalidArgument(
        "Engine ID mismatch for dp_rank={}: expected {}, got {}; give each engine a dp_rank of its own", worker.dp_rank,
        engine.engine_id, worker.engine_id);
  }
  if (worker.incarnation && *worker.incarnation < *engine.incarnation) {
    return InvalidArgument("incarnation of dp_rank={} is {}, but {} has registered; stop the earlier process",
                           worker.dp_rank, *worker.incarnation, *engine.incarnation);
  }
  if (worker.kv_lease_duration != engine.kv_lease_duration || worker.tp_size != engine.tp_size ||
      worker.pp_size != engine.pp_size) {
    return InvalidArgument(
        "workers of dp_rank={} differ in kv_lease_duration, tp_size or pp_size; start all with one setting",
        worker.dp_rank);
  }
  return absl::OkStatus();
}

}  // namespace

bool RegisteredEngine::IsPartial() const {
  return tp_size && pp_size && CountWorkers(*this) < static_cast<size_t>(*tp_size * *pp_size);
}

absl::Status BootstrapRegistry::Register(const WorkerRegistration& worker) {
  TENURE_RETURN_IF_ERROR(CheckWorker(worker));
  const auto found = engines_.find(worker.dp_rank);
  const bool replaces = found != engines_.end() && IsNewer(worker, found->second);
  if (found != engines_.end() && !replaces) {
    RegisteredEngine& engine = found->second;
    TENURE_RETURN_IF_ERROR(CheckSameEngine(worker, engine));
    const auto stages = engine.addresses.find(worker.tp_rank);
    if (stages != engine.addresses.end()) {
      const auto known = stages->second.find(worker.pp_rank);
      if (known != stages->second.end()) {
        if (known->second == worker.address) return absl::OkStatus();
        return InvalidArgument(
            "Worker with dp_rank={}, tp_rank={}, pp_rank={} is already registered at {}; restart the "
            "bootstrap server, or start the engine with an incarnation",
            worker.dp_rank, worker.tp_rank, worker.pp_rank, known->second);
      }
    }
  }
  if (!replaces && num_workers_ >= kWorkersMax) {
    return ResourceExhausted("{} workers are registered, the maximum; use another bootstrap server", num_workers_);
  }
  if (replaces) {
    num_workers_ -= CountWorkers(found->second);
    engines_.erase(found);
  }
  RegisteredEngine& engine = engines_[worker.dp_rank];
  if (engine.addresses.empty()) {
    engine.engine_id = worker.engine_id;
    engine.kv_lease_duration = worker.kv_lease_duration;
    engine.incarnation = worker.incarnation;
    engine.tp_size = worker.tp_size;
    engine.pp_size = worker.pp_size;
  }
  engine.addresses[worker.tp_rank][worker.pp_rank] = worker.address;
  ++num_workers_;
  return absl::OkStatus();
}

}  // namespace tenure::pd
