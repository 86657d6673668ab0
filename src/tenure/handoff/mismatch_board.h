// The last pairs of engines with different leases, for GET /status of a bootstrap server and for logs. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tenure/base/mutex.h"
#include "tenure/pd/lease_agreement.h"

namespace tenure::handoff {

class MismatchBoard {
 public:
  static constexpr size_t kShownMax = 256;

  void Add(const std::vector<pd::LeaseMismatch>& mismatches);

  // {"total": how often, "mismatches": the last kShownMax, oldest first, each {"peer", "prefill_seconds" and
  // "decode_seconds" (null: off), "text", "transfer_id" where one is known}}. One entry a transfer.
  std::string ToJson() const;

 private:
  struct Entry {
    std::string peer;
    std::optional<double> prefill_seconds;
    std::optional<double> decode_seconds;
    std::optional<std::string> transfer_id;
  };
  mutable Mutex mutex_;
  int64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::handoff
