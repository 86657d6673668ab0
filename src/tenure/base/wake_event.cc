#include "tenure/base/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace tenure {

WakeEvent::WakeEvent() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WakeEvent::~WakeEvent() {
  if (fd_ >= 0) close(fd_);
}

void WakeEvent::Wake() const {
  const uint64_t one = 1;
  // Can fail only when a wake is pending already.
  if (write(fd_, &one, sizeof one) < 0) return;
}

void WakeEvent::Clear() const {
  uint64_t count = 0;
  // Nothing to read when it was cleared already.
  if (read(fd_, &count, sizeof count) < 0) return;
}

}  // namespace tenure
