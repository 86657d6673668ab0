// From absl::Status to Python exceptions, and the checks of numbers that come from Python.
//
// InvalidArgument is ValueError, Unavailable is tenure.PoolUnavailable, ResourceExhausted is tenure.ResourceExhausted,
// everything else is tenure.Error; the text is the status's. All with the interpreter's lock held.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/units.h"

namespace tenure::python {

[[noreturn]] void Throw(const absl::Status& status);

inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) Throw(status);
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> result) {
  if (!result.ok()) Throw(result.status());
  return *std::move(result);
}

// ValueError, naming `what` and the limits.
void CheckRange(std::string_view what, int64_t value, int64_t minimum, int64_t maximum);
// A number of tokens that no sum in the rules can overflow.
Tokens TokensFrom(std::string_view what, int64_t value, int64_t minimum = 0);
// Seconds above 0 (also not NaN) and at most `maximum`.
absl::Duration DurationFrom(std::string_view what, double seconds, absl::Duration maximum);

}  // namespace tenure::python
