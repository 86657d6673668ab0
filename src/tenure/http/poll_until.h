// Waiting for sockets up to an instant, whatever signals come meanwhile.
#pragma once

#include <poll.h>

#include <span>

#include "tenure/base/clock.h"

namespace tenure::http {

// As poll: how many of `watched` are ready, with their revents; 0 when `end` came first; below 0 with errno, which is
// never EINTR. Looks once where `end` has passed.
int PollUntil(std::span<pollfd> watched, const Clock& clock, MonotonicTime end);

}  // namespace tenure::http
