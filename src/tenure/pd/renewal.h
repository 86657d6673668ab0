// The message by which D extends the handoff leases of transfers it still wants (pd_protocol spec §6).
//
// A map whose first key is `renew_transfer_ids`. The fields' names are none of a pull's required ones, so a P that
// knows no renewals refuses it as a pull without `remote_hostname`, and a pull decodes as an empty renewal. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tenure::pd {

struct Renewal {
  std::vector<std::string> transfer_ids;
  std::optional<double> kv_lease_duration;  // D's own setting, seconds; absent: D does not tell.

  friend bool operator==(const Renewal&, const Renewal&) = default;
};

// More ids go into further messages; what a decoder accepts is wider, for senders that count differently.
inline constexpr size_t kRenewalIdsPerMessage = 128;
inline constexpr size_t kRenewalIdsMax = 4096;

// Whether the first key says so; looks at the head of the message and takes no memory. Everything else is a pull.
bool IsRenewal(std::string_view message);

// InvalidArgument for more than kRenewalIdsMax ids, an id that no pull could carry, or a lease that is not finite.
absl::StatusOr<std::string> EncodeRenewal(const Renewal& renewal);
// InvalidArgument for what is malformed or beyond the maxima.
absl::StatusOr<Renewal> DecodeRenewal(std::string_view message);

}  // namespace tenure::pd
