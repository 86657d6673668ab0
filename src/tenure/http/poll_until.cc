#include "tenure/http/poll_until.h"

#include <algorithm>
#include <cerrno>

#include "absl/time/time.h"

namespace tenure::http {

int PollUntil(std::span<pollfd> watched, const Clock& clock, MonotonicTime end) {
  while (true) {
    const absl::Duration left = std::clamp(end - clock.Now(), absl::ZeroDuration(), absl::Hours(1));
    const int wait = static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
    const int ready = poll(watched.data(), watched.size(), wait);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (clock.Now() >= end) return 0;
  }
}

}  // namespace tenure::http
