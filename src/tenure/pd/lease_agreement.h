// Both engines of a pair must have the same kv_lease_duration, or none (design §7, pd_protocol spec §6).
//
// Checked by D against what P published, and by P against what a pull carries. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tenure::pd {

// One that was found, for a status page.
struct LeaseMismatch {
  std::string peer;  // The engine or the address on the other side.
  std::optional<double> prefill_seconds;
  std::optional<double> decode_seconds;
  std::vector<std::string> transfer_ids;  // Of those it fails, at most kMismatchIdsMax.
};

inline constexpr size_t kMismatchIdsMax = 32;

// Seconds; absent is off. FailedPrecondition with both values and the remedy when they differ: the one text that logs,
// the status endpoint and replies show.
absl::Status CheckLeaseAgreement(std::optional<double> prefill_seconds, std::optional<double> decode_seconds);

}  // namespace tenure::pd
