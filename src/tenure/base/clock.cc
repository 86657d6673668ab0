#include "tenure/base/clock.h"

#include <ctime>

namespace tenure {

MonotonicTime MonotonicClock::Now() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return MonotonicTime::FromNanoseconds(int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
}

}  // namespace tenure
