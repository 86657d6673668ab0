// A pool in front of another that records how long probes and leases take and how many keys fail in them.
//
// Thread-safe as the pool behind it.
#pragma once

#include <span>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/engine/forwarding_pool.h"
#include "tenure/engine/worker_report.h"

namespace tenure::engine {

// The names that metrics give to them (store_connector spec §9).
enum class LookupOperation : uint8_t { kProbe, kLease };
std::string_view ToString(LookupOperation operation);

// One call of the pool.
struct LookupRecord {
  LookupOperation operation = LookupOperation::kProbe;
  absl::Duration duration;
  int64_t keys = 0;
  int64_t failed_keys = 0;  // The pool did not answer for them; absent is an answer, of a lease too.
  OperationStatus status = OperationStatus::kOk;
};

class RecordingPool final : public ForwardingPool {
 public:
  // Calls past this many between two TakeRecords are not recorded.
  static constexpr size_t kRecordsMax = 65'536;

  // Both outlive it.
  RecordingPool(store::Pool& pool, const Clock& clock) : ForwardingPool(pool), clock_(clock) {}

  // Those since the last call, oldest first.
  std::vector<LookupRecord> TakeRecords();

  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override;

 private:
  void Record(LookupOperation operation, MonotonicTime start, size_t keys, int64_t failed_keys, bool ok);

  const Clock& clock_;
  Mutex mutex_;
  std::vector<LookupRecord> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::engine
