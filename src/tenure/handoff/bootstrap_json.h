// The bodies of the bootstrap server's HTTP (pd_protocol spec §2), to and from JSON.
//
// A registration: {"engine_id", "dp_rank", "tp_rank", "pp_rank", "addr"}. An answer to a query: the engines by dp rank
// as text, each {"engine_id", "worker_addr": {TP: {PP: address}}}. Optional beyond stock's, in both:
// "kv_lease_duration" (seconds), "incarnation", "tp_size", "pp_size"; null is absent. Unknown fields are skipped. Pure
// functions; a peer's bytes never throw, and an error is one line that names the field and is valid in UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/pd/bootstrap_registry.h"

namespace tenure::handoff {

using RegisteredEngines = std::map<int64_t, pd::RegisteredEngine>;  // By dp rank.

inline constexpr size_t kRegistrationBytesMax = 64 << 10;
inline constexpr size_t kEnginesBytesMax = size_t{16} << 20;

// A text that is not UTF-8 is told with replacements.
std::string EncodeRegistration(const pd::WorkerRegistration& worker);
// InvalidArgument: longer than kRegistrationBytesMax, no JSON object, a field that is missing or of another type.
// Ranges are the registry's to check.
absl::StatusOr<pd::WorkerRegistration> DecodeRegistration(std::string_view text);

std::string EncodeEngines(const RegisteredEngines& engines);
// InvalidArgument as above, with kEnginesBytesMax, also for a rank that is no number or comes twice, for more than the
// registry holds and for a lease that is no time above 0.
absl::StatusOr<RegisteredEngines> DecodeEngines(std::string_view text);

// What an answer other than 200 says: {"detail": text}, with the registry's or decoder's text.
std::string EncodeDetail(std::string_view detail);
// The text of "detail", or whatever else the server said: the first 500 bytes, as one line.
std::string DecodeDetail(std::string_view body);

}  // namespace tenure::handoff
