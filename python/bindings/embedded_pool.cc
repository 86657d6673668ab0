// The embedded pool for Python, with the clock and the thread that it needs in a process of its own.
#include "tenure/store/embedded_pool.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/pool_handle.h"
#include "bindings/pool_options.h"
#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/store/maintenance_thread.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

// Destroyed in reverse: the thread, the pool, the clock.
struct OwnedPool {
  MonotonicClock clock;
  std::unique_ptr<store::EmbeddedPool> pool;
  std::unique_ptr<store::MaintenanceThread> maintenance;
};

std::shared_ptr<store::Pool> MakePool(store::EmbeddedPoolOptions options) {
  CheckMachine(options.capacity.value());
  auto owned = std::make_shared<OwnedPool>();
  absl::StatusOr<std::unique_ptr<store::EmbeddedPool>> pool = absl::UnknownError("not made");
  {
    nb::gil_scoped_release unlocked;  // Touching all pages takes a while.
    pool = store::EmbeddedPool::Create(std::move(options), owned->clock);
  }
  owned->pool = ValueOrThrow(std::move(pool));
  owned->maintenance = std::make_unique<store::MaintenanceThread>(*owned->pool);
  return std::shared_ptr<store::Pool>(owned, owned->pool.get());
}

class EmbeddedHandle final : public PoolHandle {
 public:
  using PoolHandle::PoolHandle;
};

void Init(EmbeddedHandle* self, const SizeArgument& capacity, const std::string& mode, const SizeArgument& slab_bytes,
          int64_t objects_max, int shards, double high_watermark, double low_watermark) {
  store::EmbeddedPoolOptions options;
  options.capacity = Bytes(BytesFrom("capacity", capacity));
  options.slab_bytes = Bytes(BytesFrom("slab_bytes", slab_bytes));
  options.mode = ModeFrom(mode);
  options.objects_max = objects_max;
  options.shards = shards;
  options.high_watermark = high_watermark;
  options.low_watermark = low_watermark;
  new (self) EmbeddedHandle(MakePool(std::move(options)));
}

}  // namespace

void BindEmbeddedPool(nb::module_& module) {
  module.def(
      "parse_size", [](const std::string& what, const std::string& text) { return BytesFrom(what, text); }, "what"_a,
      "text"_a, "Bytes of a size as people type it ('8GiB', '512kB', '4096'); ValueError begins with `what`.");
  nb::class_<EmbeddedHandle, PoolHandle>(
      module, "EmbeddedPool",
      "A pool in this process; all its memory is taken here.\n\n"
      "capacity: bytes, or text such as '8GiB'. mode: 'closed' (an object leaves only when it has no children) or\n"
      "'independent'. slab_bytes: a slab is cut for one exact object size, so it is the largest object, and capacity "
      "is\n"
      "rounded down to whole slabs. objects_max: entries of the index; 0 is one for each 16 KiB. shards: a power of "
      "two.\n"
      "high_watermark, low_watermark: used shares of capacity at which eviction starts and ends. ValueError names the\n"
      "option, ResourceExhausted the memory that cannot be had.")
      .def("__init__", &Init, "capacity"_a, nb::kw_only(), "mode"_a = "closed",
           "slab_bytes"_a = SizeArgument(int64_t{64} << 20), "objects_max"_a = 0, "shards"_a = 64,
           "high_watermark"_a = 0.95, "low_watermark"_a = 0.855)
      .def(
          "share", [](const EmbeddedHandle& self) { return std::make_unique<EmbeddedHandle>(self.Open()); },
          "Another object for the same pool, with namespaces and registered buffers of its own. The pool ends with the "
          "last.");
}

}  // namespace tenure::python
