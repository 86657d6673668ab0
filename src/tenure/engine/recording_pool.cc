#include "tenure/engine/recording_pool.h"

#include <algorithm>

#include "tenure/base/check.h"

namespace tenure::engine {

std::string_view ToString(LookupOperation operation) {
  switch (operation) {
    case LookupOperation::kProbe:
      return "lookup_probe";
    case LookupOperation::kLease:
      return "lookup_lease";
  }
  TENURE_CHECK(false);
}

std::vector<LookupRecord> RecordingPool::TakeRecords() {
  std::vector<LookupRecord> records;
  MutexLock lock(mutex_);
  records.swap(records_);
  return records;
}

void RecordingPool::Record(LookupOperation operation, MonotonicTime start, size_t keys, int64_t failed_keys, bool ok) {
  LookupRecord record{.operation = operation, .duration = clock_.Now() - start, .keys = static_cast<int64_t>(keys)};
  record.failed_keys = ok ? failed_keys : record.keys;
  if (!ok) {
    record.status = OperationStatus::kError;
  } else if (failed_keys > 0) {
    record.status = OperationStatus::kPartialFailure;
  }
  MutexLock lock(mutex_);
  if (records_.size() < kRecordsMax) records_.push_back(record);
}

absl::Status RecordingPool::Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) {
  const MonotonicTime start = clock_.Now();
  const absl::Status status = pool().Probe(keys, answers);
  const auto failed = std::count(answers.begin(), answers.end(), store::KeyAnswer::kUnavailable);
  Record(LookupOperation::kProbe, start, keys.size(), failed, status.ok());
  return status;
}

absl::StatusOr<store::Lease> RecordingPool::AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                                         std::span<store::KeyAnswer> answers) {
  const MonotonicTime start = clock_.Now();
  absl::StatusOr<store::Lease> lease = pool().AcquireLease(keys, ttl, answers);
  const auto failed = std::count(answers.begin(), answers.end(), store::KeyAnswer::kUnavailable);
  Record(LookupOperation::kLease, start, keys.size(), failed, lease.ok());
  return lease;
}

}  // namespace tenure::engine
