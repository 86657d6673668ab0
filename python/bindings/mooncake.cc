// The Mooncake pool for Python; tenure/mooncake.py reads its configuration and makes Mooncake's own objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/blocking_mooncake.h"
#include "bindings/call_lane.h"
#include "bindings/direct_mooncake.h"
#include "bindings/errors.h"
#include "bindings/lock_guard.h"
#include "bindings/mooncake_client.h"
#include "bindings/mooncake_pool.h"
#include "bindings/pool_handle.h"
#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

// Ends its pool itself, since lookups and leases may hold that until the interpreter is gone.
class MooncakeHandle : public PoolHandle {
 public:
  explicit MooncakeHandle(std::shared_ptr<MooncakePool> pool) : PoolHandle(pool), pool_(std::move(pool)) {}
  ~MooncakeHandle() override { Close(); }

  BackgroundPool OpenInBackground() const override {
    Open();
    return {std::make_shared<BlockingMooncake>(pool_), absl::FromChrono(CallLane::kStopGrace)};
  }

  std::shared_ptr<DevicePool> OpenOnDevice(const std::shared_ptr<engine::Copier>& device,
                                           const std::vector<engine::MemoryRange>& regions) const override {
    Open();
    std::vector<MooncakePiece> pieces;
    uint64_t bytes = 0;
    for (const engine::MemoryRange& region : regions) {
      pieces.push_back({reinterpret_cast<uintptr_t>(region.base), static_cast<uint64_t>(region.size)});
      bytes += pieces.back().size;
    }
    auto pool = DirectMooncake::Create(pool_, device, std::move(pieces));
    if (pool.ok()) {
      LogInfo("Mooncake reads and writes the engine's {} bytes of KV on the device itself", bytes);
      return *std::move(pool);
    }
    LogWarning(
        "Mooncake does not take the engine's KV on the device ({}), so its copies go through memory of the host, which "
        "is slower; let the network's driver register the device's memory (nvidia_peermem), or use protocol tcp",
        Message(pool.status()));
    return nullptr;
  }

  void Close() {
    const LockReleased unlocked;
    state()->Close();
    pool_->End();
  }

 private:
  std::shared_ptr<MooncakePool> pool_;
};

void Init(MooncakeHandle* self, nb::object store, nb::object replicate_config, const nb::tuple& setup_arguments,
          double setup_timeout, double call_timeout, double transfer_timeout, double lease_ttl, int64_t staging_bytes,
          double given_up_after, double late_bytes_max) {
  MooncakePoolOptions options;
  options.setup_timeout = DurationFrom("setup_timeout", setup_timeout, absl::Hours(1));
  options.call_timeout = DurationFrom("call_timeout", call_timeout, absl::Hours(1));
  options.transfer_timeout = DurationFrom("transfer_timeout", transfer_timeout, absl::Hours(1));
  options.lease_ttl = DurationFrom("lease_ttl", lease_ttl, store::Pool::kLeaseTtlMax);
  options.staging_bytes = Bytes(staging_bytes);
  options.given_up_after = DurationFrom("given_up_after", given_up_after, absl::Hours(1));
  options.late_bytes_max = DurationFrom("late_bytes_max", late_bytes_max, absl::Hours(1));
  auto client = std::make_shared<MooncakeClient>(std::move(store), std::move(replicate_config));
  new (self) MooncakeHandle(ValueOrThrow(MooncakePool::Create(std::move(client), setup_arguments, options)));
}

}  // namespace

void BindMooncake(nb::module_& module) {
  nb::class_<MooncakeHandle, PoolHandle>(
      module, "MooncakeStorePool", nb::is_weak_referenceable(),
      "The pool contract over a mooncake.store.MooncakeDistributedStore; MooncakePool is the one to use.\n\n"
      "store: not set up yet; this pool sets it up with setup_arguments and closes it. replicate_config: for every "
      "put.\n"
      "Timeouts and lease_ttl in seconds, staging_bytes as MooncakePool has them. A transfer that failed after "
      "given_up_after may\n"
      "still move bytes: its memory is kept from others for late_bytes_max more seconds. PoolUnavailable when the "
      "setup "
      "fails.")
      .def("__init__", &Init, "store"_a, "replicate_config"_a, "setup_arguments"_a, nb::kw_only(),
           "setup_timeout"_a = 30.0, "call_timeout"_a = 2.0, "transfer_timeout"_a = 10.0, "lease_ttl"_a = 10.0,
           "staging_bytes"_a = int64_t{64} << 20, "given_up_after"_a = 25.0, "late_bytes_max"_a = 45.0)
      .def("close", &MooncakeHandle::Close,
           "Ends the pool and closes its store after the calls under way, within call_timeout and 4 s; at once where a "
           "call "
           "is\n"
           "late already, whose end then closes the store. Idempotent.")
      .def("__exit__", [](MooncakeHandle& self, const nb::args&) { self.Close(); });
}

}  // namespace tenure::python
