#include "tenure/engine/worker_report.h"

#include "tenure/base/status.h"

namespace tenure::engine {

std::string_view ToString(Operation operation) {
  switch (operation) {
    case Operation::kSaveExists:
      return "save_exists";
    case Operation::kSavePut:
      return "save_put";
    case Operation::kLoadGet:
      return "load_get";
  }
  return "unknown";
}

std::string_view ToString(OperationStatus status) {
  switch (status) {
    case OperationStatus::kOk:
      return "ok";
    case OperationStatus::kPartialFailure:
      return "partial_failure";
    case OperationStatus::kError:
      return "error";
  }
  return "unknown";
}

std::string_view ToString(LoadFailure failure) {
  switch (failure) {
    case LoadFailure::kAbsent:
      return "absent";
    case LoadFailure::kWrongSize:
      return "wrong_size";
    case LoadFailure::kUnavailable:
      return "unavailable";
    case LoadFailure::kDeadline:
      return "deadline";
    case LoadFailure::kBadBlock:
      return "bad_block";
    case LoadFailure::kCopy:
      return "copy";
    case LoadFailure::kNotTried:
      return "not_tried";
  }
  return "unknown";
}

std::vector<std::pair<std::string, int64_t>> WorkerCounters::Named() const {
  std::vector<std::pair<std::string, int64_t>> named = {
      {"loads_total", loads_total},
      {"failed_loads_total", failed_loads_total},
      {"loaded_keys_total", loaded_keys_total},
      {"loaded_bytes_total", loaded_bytes_total},
      {"save_jobs_total", save_jobs_total},
      {"failed_save_jobs_total", failed_save_jobs_total},
      {"skipped_save_jobs_total", skipped_save_jobs_total},
      {"saved_keys_total", saved_keys_total},
      {"saved_bytes_total", saved_bytes_total},
      {"present_keys_total", present_keys_total},
      {"refused_keys_total", refused_keys_total},
      {"reports_cut_total", reports_cut_total},
  };
  for (size_t i = 0; i < kLoadFailures; ++i) {
    named.emplace_back(fmt::format("load_keys_{}_total", ToString(static_cast<LoadFailure>(i))),
                       failed_load_keys_total[i]);
  }
  return named;
}

void ReportBox::AddLoaded(std::string request) {
  MutexLock lock(mutex_);
  ++report_.counters.loads_total;
  report_.loaded.push_back(std::move(request));
}

void ReportBox::AddFailed(std::string request, const std::vector<BlockId>& blocks) {
  MutexLock lock(mutex_);
  ++report_.counters.loads_total;
  ++report_.counters.failed_loads_total;
  report_.failed.push_back(std::move(request));
  report_.failed_blocks.insert(report_.failed_blocks.end(), blocks.begin(), blocks.end());
}

void ReportBox::AddSaved(uint64_t job) {
  MutexLock lock(mutex_);
  ++report_.counters.save_jobs_total;
  report_.saved.push_back(job);
}

void ReportBox::AddEvents(std::vector<StoredEvent> events) {
  MutexLock lock(mutex_);
  for (StoredEvent& event : events) {
    if (report_.events.size() < kEventsMax) {
      report_.events.push_back(std::move(event));
    } else {
      ++report_.counters.reports_cut_total;
    }
  }
}

void ReportBox::AddOperation(const OperationRecord& record) {
  MutexLock lock(mutex_);
  if (report_.operations.size() < kOperationsMax) {
    report_.operations.push_back(record);
  } else {
    ++report_.counters.reports_cut_total;
  }
}

WorkerReport ReportBox::Take() {
  MutexLock lock(mutex_);
  WorkerReport taken;
  taken.counters = report_.counters;
  std::swap(taken, report_);
  taken.counters = report_.counters;
  return taken;
}

}  // namespace tenure::engine
