// The one reader of sizes, durations and counts that people type (design: CLI11 takes "-1" as 2^64 - 1 and "512GB" as
// GiB).
//
// Every error names `what` (the option or field), the text and the forms that are accepted. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/units.h"

namespace tenure {

// A whole number in [minimum, maximum], decimal digits only.
absl::StatusOr<int64_t> ParseCount(std::string_view what, std::string_view text, int64_t minimum, int64_t maximum);

// "<number><unit>": B, kB, MB, GB, TB are powers of 1000; KiB, MiB, GiB, TiB powers of 1024; no unit means bytes. The
// number may have a decimal point ("1.5GiB"); a fraction of a byte is an error. One blank between number and unit is
// accepted.
absl::StatusOr<Bytes> ParseSize(std::string_view what, std::string_view text);

// "<number><unit>" with ns, us, ms, s, m or min, h; the unit is needed. At most 10 years, not negative.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view what, std::string_view text);

}  // namespace tenure
