// A Mooncake pool for threads whose askers do not wait for them: background lookups.
//
// Probes and leases run in the calling thread, for as long as Mooncake takes: half a minute where a master is gone.
// That saves two changes of threads a call, 90 us of the 1 to 2 ms that a lookup takes. Every other call is the pool's
// own. Thread-safe; call without the interpreter's lock.
#pragma once

#include <memory>
#include <utility>

#include "bindings/mooncake_pool.h"
#include "tenure/engine/forwarding_pool.h"

namespace tenure::python {

class BlockingMooncake final : public engine::ForwardingPool {
 public:
  explicit BlockingMooncake(std::shared_ptr<MooncakePool> pool) : ForwardingPool(*pool), mooncake_(std::move(pool)) {}

  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override {
    return mooncake_->ProbeBlocking(keys, answers);
  }
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override {
    return mooncake_->AcquireLeaseBlocking(keys, ttl, answers);
  }

 private:
  const std::shared_ptr<MooncakePool> mooncake_;
};

}  // namespace tenure::python
