// The worker side of the store connector for Python: conversion only. What waits runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/convert.h"
#include "bindings/errors.h"
#include "bindings/lock_guard.h"
#include "bindings/pool_handle.h"
#include "bindings/process_mark.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/engine/device_copier.h"
#include "tenure/engine/store_worker.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using PieceTuple = std::tuple<uint64_t, int64_t, int64_t>;
using PieceLists = std::vector<std::vector<std::vector<PieceTuple>>>;

std::byte* AddressFrom(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

std::vector<engine::MemoryRange> RangesFrom(const std::vector<std::pair<uint64_t, int64_t>>& regions) {
  std::vector<engine::MemoryRange> ranges;
  for (const auto& [base, bytes] : regions) ranges.push_back({AddressFrom(base), bytes});
  return ranges;
}

engine::BlockMemory MemoryFrom(const PieceLists& groups, const std::vector<engine::MemoryRange>& regions,
                               int64_t num_blocks) {
  engine::BlockMemory::Options options;
  options.num_blocks = num_blocks;
  for (const auto& shards : groups) {
    auto& group = options.groups.emplace_back();
    for (const auto& pieces : shards) {
      auto& shard = group.emplace_back();
      for (const auto& [base, stride, size] : pieces) shard.push_back({AddressFrom(base), stride, size});
    }
  }
  options.regions = regions;
  return ValueOrThrow(engine::BlockMemory::Create(std::move(options)));
}

// How KV gets to the pool and back.
struct Way {
  std::shared_ptr<store::Pool> pool;
  std::shared_ptr<engine::Copier> copier = engine::MakeHostCopier();
  std::shared_ptr<DevicePool> device_pool = nullptr;  // The same as `pool`, where that reaches the device's memory.
};

Way WayFrom(const PoolHandle& pool, const std::optional<std::pair<std::string, int>>& device,
            const std::vector<engine::MemoryRange>& regions) {
  Way way{.pool = pool.Open()};
  if (!device) return way;
  way.copier = ValueOrThrow(engine::MakeDeviceCopier(device->first, device->second));
  way.device_pool = pool.OpenOnDevice(way.copier, regions);
  if (way.device_pool == nullptr) return way;
  way.pool = way.device_pool;
  way.copier = engine::MakeDirectCopier(way.copier);
  return way;
}

// Keeps what a StoreWorker borrows. Plans come from one thread at a time; a lock makes sure of that.
class WorkerHandle {
 public:
  WorkerHandle(engine::StoreWorkerOptions options, engine::BlockMemory memory, Way way)
      : way_(std::move(way)),
        worker_(ValueOrThrow(
            engine::StoreWorker::Create(std::move(options), std::move(memory), *way_.pool, *way_.copier, clock_))) {}
  ~WorkerHandle() {
    if (made_in_.is_forked()) {
      Leave();
      return;
    }
    Close();
    const LockReleased unlocked;  // The pool's threads may need the lock to end.
    worker_.reset();
    way_ = {};
  }
  WorkerHandle(const WorkerHandle&) = delete;
  WorkerHandle& operator=(const WorkerHandle&) = delete;

  void StartLoads(const nb::bytes& plan, uint64_t stream) {
    engine::StepPlan decoded = PlanFrom(plan);
    nb::gil_scoped_release unlocked;
    worker_->StartLoads(std::move(decoded), stream);
  }
  void LoadNow(const nb::bytes& plan, uint64_t stream) {
    engine::StepPlan decoded = PlanFrom(plan);
    nb::gil_scoped_release unlocked;
    worker_->LoadNow(std::move(decoded), stream);
  }
  void StartSaves(const nb::bytes& plan, uint64_t stream) {
    engine::StepPlan decoded = PlanFrom(plan);
    nb::gil_scoped_release unlocked;
    MutexLock lock(submit_);
    worker_->StartSaves(std::move(decoded), stream);
  }
  engine::WorkerReport TakeReport() {
    nb::gil_scoped_release unlocked;
    return worker_->TakeReport();
  }
  bool Drain(double timeout) {
    const absl::Duration duration = DurationFrom("timeout", timeout, absl::Hours(24));
    nb::gil_scoped_release unlocked;
    return worker_->Drain(duration);
  }
  // Idempotent.
  void Close() {
    if (made_in_.is_forked()) return;
    const LockReleased unlocked;
    MutexLock lock(submit_);
    worker_->Stop();
    if (way_.device_pool != nullptr) way_.device_pool->End();
  }

 private:
  static engine::StepPlan PlanFrom(const nb::bytes& plan) {
    absl::StatusOr<engine::StepPlan> decoded = absl::UnknownError("not read");
    {
      nb::gil_scoped_release unlocked;  // A long prompt's plan has megabytes.
      decoded = engine::DecodeStepPlan(std::string_view(plan.c_str(), plan.size()));
    }
    return ValueOrThrow(std::move(decoded));
  }

  void Leave() {
    static_cast<void>(worker_.release());
    static_cast<void>(new Way(std::move(way_)));
  }

  const ProcessMark made_in_;
  const MonotonicClock clock_;
  Way way_;
  Mutex submit_;
  std::unique_ptr<engine::StoreWorker> worker_;
};

void Init(WorkerHandle* self, const kv::CacheConfig& config, const PoolHandle& pool, const NamespaceLists& namespaces,
          const PieceLists& pieces, const std::vector<std::pair<uint64_t, int64_t>>& regions, int64_t num_blocks,
          int32_t tp_rank, const std::vector<int32_t>& stripes, std::optional<int64_t> retention, bool can_put,
          int load_threads, double load_deadline, bool events,
          const std::optional<std::pair<std::string, int>>& device) {
  engine::StoreWorkerOptions options{.config = config, .namespaces = NamespaceIdsFrom(*pool.state(), namespaces)};
  options.tp_rank = tp_rank;
  options.stripes = stripes;
  if (retention) options.retention = TokensFrom("retention", *retention);
  options.can_put = can_put;
  options.load_threads = load_threads;
  options.load_deadline = DurationFrom("load_deadline", load_deadline, absl::Hours(24));
  options.events = events;
  const std::vector<engine::MemoryRange> ranges = RangesFrom(regions);
  engine::BlockMemory memory = MemoryFrom(pieces, ranges, num_blocks);
  new (self) WorkerHandle(std::move(options), std::move(memory), WayFrom(pool, device, ranges));
}

nb::object HashOrNone(const std::optional<kv::BlockHash>& hash) {
  if (!hash) return nb::none();
  return ToPython(*hash);
}

nb::list EventsOf(const engine::WorkerReport& report) {
  nb::list events;
  for (const engine::StoredEvent& event : report.events) {
    nb::list ids;
    for (const int32_t id : event.token_ids) ids.append(id);
    events.append(nb::make_tuple(event.group.value(), ToPython(event.hash), HashOrNone(event.parent),
                                 event.block_size.value(), ids));
  }
  return events;
}

nb::list OperationsOf(const engine::WorkerReport& report) {
  nb::list operations;
  for (const engine::OperationRecord& record : report.operations) {
    operations.append(nb::make_tuple(std::string(ToString(record.operation)), absl::ToDoubleSeconds(record.duration),
                                     record.keys, record.bytes, record.failed_keys,
                                     std::string(ToString(record.status))));
  }
  return operations;
}

template <typename Item>
nb::list ListOf(const std::vector<Item>& items) {
  nb::list list;
  for (const Item& item : items) list.append(item);
  return list;
}

nb::dict TakeReports(WorkerHandle& self) {
  const engine::WorkerReport report = self.TakeReport();
  nb::dict saved;
  for (const uint64_t job : report.saved) saved[nb::int_(job)] = 1;
  nb::dict counters;
  for (const auto& [name, value] : report.counters.Named()) counters[name.c_str()] = value;
  nb::dict dict;
  dict["loaded"] = ListOf(report.loaded);
  dict["failed"] = ListOf(report.failed);
  dict["failed_blocks"] = ListOf(report.failed_blocks);
  dict["saved"] = saved;
  dict["events"] = EventsOf(report);
  dict["operations"] = OperationsOf(report);
  dict["counters"] = counters;
  return dict;
}

}  // namespace

void BindEngineWorker(nb::module_& module) {
  nb::class_<WorkerHandle>(
      module, "StoreWorker",
      "The worker side of a store connector: loads and saves KV blocks on threads of its own.\n\n"
      "config: the CacheConfig. pool: a Pool. namespaces: this rank's, group -> shard. pieces: group -> shard -> the "
      "(base,\n"
      "stride, size) of each part of a block in memory; regions: the (base, bytes) that hold them all; num_blocks "
      "counts the\n"
      "null block 0. stripes: ranks with the same bytes of each group. retention: None (dense), 0 (replay boundaries "
      "only) or a\n"
      "multiple of the scheduler block size. can_put: False reports saves as done. load_threads: 1 to 64. "
      "load_deadline:\n"
      "seconds a request's load may take. events: report what was stored. device: (type, ordinal) of the memory; None "
      "is the\n"
      "host's. A Mooncake pool reads and writes a device's memory itself; (\"cpu\", 0) lets it do so with the host's, "
      "for "
      "tests.\n"
      "The memory must outlive the worker's close(). ValueError names the argument, PoolUnavailable a driver that is "
      "not "
      "there.")
      .def("__init__", &Init, "config"_a, "pool"_a, "namespaces"_a, "pieces"_a, "regions"_a, "num_blocks"_a,
           nb::kw_only(), "tp_rank"_a, "stripes"_a, "retention"_a = nb::none(), "can_put"_a = true,
           "load_threads"_a = 1, "load_deadline"_a = 5.0, "events"_a = false, "device"_a = nb::none())
      .def("start_loads", &WorkerHandle::StartLoads, "plan"_a, "stream"_a = 0,
           "Begins the plan's loads; their ends come with take_reports. stream: the device stream on which the engine "
           "has queued\n"
           "what still uses the blocks, as an integer. ValueError for bytes that are no plan.")
      .def("load_now", &WorkerHandle::LoadNow, "plan"_a, "stream"_a = 0,
           "The same, and returns when they have ended; how, take_reports says.")
      .def("start_saves", &WorkerHandle::StartSaves, "plan"_a, "stream"_a = 0,
           "Begins the plan's saves and drops the state of its preempted and finished requests. stream: the device "
           "stream on\n"
           "which the engine has queued what writes the blocks, as an integer.")
      .def("take_reports", &TakeReports,
           "What has ended since the last call: loaded and failed (request ids), failed_blocks (without the right "
           "bytes), saved\n"
           "(job -> 1), events ((group, hash, parent or None, block size, token ids)), operations ((name, seconds, "
           "keys, bytes,\n"
           "failed keys, status)), counters (name -> sum since the start).")
      .def("drain", &WorkerHandle::Drain, "timeout"_a,
           "Waits until nothing is loading or saving; False when that took longer than timeout seconds.")
      .def("close", &WorkerHandle::Close,
           "Ends the threads. What was not begun is reported as failed loads and ended jobs. Idempotent.");
}

}  // namespace tenure::python
