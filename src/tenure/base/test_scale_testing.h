// How many random cases a property test runs: all in a plain build, a tenth under a sanitizer. For tests only.
#pragma once

#include <cstdint>

namespace tenure {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

constexpr int64_t RandomCases(int64_t plain) { return kSanitized ? plain / 10 : plain; }

}  // namespace tenure
