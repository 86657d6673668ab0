#include "tenure/pd/lease_agreement.h"

#include <string>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

std::string ValueText(std::optional<double> seconds) { return seconds ? fmt::format("{} s", *seconds) : "off"; }

}  // namespace

absl::Status CheckLeaseAgreement(std::optional<double> prefill_seconds, std::optional<double> decode_seconds) {
  if (prefill_seconds == decode_seconds) return absl::OkStatus();
  return FailedPrecondition(
      "kv_lease_duration is {} on the prefill engine and {} on the decode engine; set the same value on both (an "
      "engine or "
      "an external bootstrap server that does not know leases counts as off)",
      ValueText(prefill_seconds), ValueText(decode_seconds));
}

}  // namespace tenure::pd
