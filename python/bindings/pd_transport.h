// The transports of a P/D pair as Python sees them. A handle may be closed before what uses its transport: that keeps a
// share. With the interpreter's lock held.
#pragma once

#include <memory>
#include <utility>

#include "bindings/errors.h"
#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/transfer/transport.h"

namespace tenure::python {

// A transport with the clock that it borrows.
struct OwnedTransport {
  MonotonicClock clock;
  std::unique_ptr<transfer::Transport> transport;
};

class TransportHandle {
 public:
  explicit TransportHandle(std::shared_ptr<OwnedTransport> owned) : owned_(std::move(owned)) {}
  ~TransportHandle() { Close(); }
  TransportHandle(TransportHandle&&) = default;
  TransportHandle& operator=(TransportHandle&&) = default;

  // Error when it is closed.
  std::shared_ptr<OwnedTransport> Open() const {
    if (owned_ == nullptr) Throw(FailedPrecondition("the transport is closed"));
    return owned_;
  }
  // Ends the transport when nothing else uses it. Idempotent.
  void Close();

 private:
  std::shared_ptr<OwnedTransport> owned_;
};

}  // namespace tenure::python
