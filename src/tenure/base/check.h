// TENURE_CHECK: a broken invariant of our own stops the process with the condition and the place.
//
// Never for a caller's input: that is validated first and answered with a status (see status.h).
#pragma once

namespace tenure {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace tenure

#define TENURE_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::tenure::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)
