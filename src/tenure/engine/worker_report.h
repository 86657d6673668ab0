// What a worker tells its engine: which loads and saves ended and how, what was stored, what the pool's calls cost.
//
// The threads of a worker add to one ReportBox; the engine's thread takes what has gathered once a step. Nothing is
// lost but what a named maximum cuts off, and that is counted. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/base/units.h"
#include "tenure/engine/step_plan.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/group_spec.h"

namespace tenure::engine {

// The names of stock's metrics (store_connector spec §9).
enum class Operation : uint8_t { kSaveExists, kSavePut, kLoadGet };
std::string_view ToString(Operation operation);
enum class OperationStatus : uint8_t { kOk, kPartialFailure, kError };
std::string_view ToString(OperationStatus status);

// One call of the pool.
struct OperationRecord {
  Operation operation = Operation::kSaveExists;
  absl::Duration duration;
  int64_t keys = 0;
  int64_t bytes = 0;  // Asked for; 0 for save_exists.
  int64_t failed_keys = 0;
  OperationStatus status = OperationStatus::kOk;
};

// Books the time that `call` takes, and when its status is an error, that every key of it failed.
template <typename Call>
absl::Status Measure(const Clock& clock, OperationRecord& record, const Call& call) {
  const MonotonicTime start = clock.Now();
  absl::Status status = call();
  record.duration = clock.Now() - start;
  if (!status.ok()) {
    record.status = OperationStatus::kError;
    record.failed_keys = record.keys;
  }
  return status;
}

// A chunk that this worker has newly stored, on all its shards.
struct StoredEvent {
  kv::GroupIndex group;
  kv::BlockHash hash;
  std::optional<kv::BlockHash> parent;  // The prefix that ends where the chunk begins; none for the first.
  Tokens block_size;
  std::vector<int32_t> token_ids;  // Empty when the engine did not tell them.
  friend bool operator==(const StoredEvent&, const StoredEvent&) = default;
};

// Why a key was not loaded.
enum class LoadFailure : uint8_t {
  kAbsent,
  kWrongSize,  // Another size than this engine's block; the key was removed. Wrong bytes are absent: see store/pool.h.
  kUnavailable,  // The pool did not answer.
  kDeadline,     // The request's time was over before it was asked for.
  kBadBlock,     // The plan named a block or a group that this engine does not have.
  kCopy,         // The device did not take the bytes.
  kNotTried,     // An earlier key of the request had failed, or the worker was stopped.
};
inline constexpr size_t kLoadFailures = 7;
std::string_view ToString(LoadFailure failure);

// Sums since the start.
struct WorkerCounters {
  int64_t loads_total = 0;         // Requests, failed ones included.
  int64_t failed_loads_total = 0;  // Requests.
  int64_t loaded_keys_total = 0;
  int64_t loaded_bytes_total = 0;
  std::array<int64_t, kLoadFailures> failed_load_keys_total{};  // By LoadFailure.
  int64_t save_jobs_total = 0;
  int64_t failed_save_jobs_total = 0;   // The pool refused or failed, or the order was wrong.
  int64_t skipped_save_jobs_total = 0;  // Not tried: the pool was full, or the request was preempted.
  int64_t saved_keys_total = 0;         // Newly stored.
  int64_t saved_bytes_total = 0;
  int64_t present_keys_total = 0;  // Wanted to be saved and there already.
  int64_t refused_keys_total = 0;  // Put and not kept.
  int64_t reports_cut_total = 0;   // Operations and events above the maximum of one report.

  // Every name with its value, in a fixed order; by-cause counters are load_keys_<cause>_total.
  std::vector<std::pair<std::string, int64_t>> Named() const;
};

struct WorkerReport {
  std::vector<std::string> loaded;     // Requests whose load has ended well.
  std::vector<std::string> failed;     // Requests whose load has ended otherwise.
  std::vector<BlockId> failed_blocks;  // Of those, the blocks without the right bytes.
  std::vector<uint64_t> saved;         // Jobs that have ended, well or not.
  std::vector<StoredEvent> events;
  std::vector<OperationRecord> operations;
  WorkerCounters counters;
};

class ReportBox {
 public:
  // Of one report; an engine that takes none must not fill memory.
  static constexpr size_t kOperationsMax = 65'536;
  static constexpr size_t kEventsMax = 1'048'576;

  void AddLoaded(std::string request);
  void AddFailed(std::string request, const std::vector<BlockId>& blocks);
  void AddSaved(uint64_t job);
  void AddEvents(std::vector<StoredEvent> events);
  void AddOperation(const OperationRecord& record);
  // Calls `change` on the counters.
  template <typename Change>
  void Count(Change change) {
    MutexLock lock(mutex_);
    change(report_.counters);
  }

  // What has gathered since the last call; counters go on.
  WorkerReport Take();

 private:
  Mutex mutex_;
  WorkerReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::engine
