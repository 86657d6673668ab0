// The pool of this machine's daemon for Python.
#include "tenure/daemon/daemon_pool.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/pool_handle.h"
#include "tenure/base/clock.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

// Destroyed in reverse.
struct OwnedPool {
  MonotonicClock clock;
  std::unique_ptr<daemon::DaemonPool> pool;
};

std::shared_ptr<store::Pool> Connect(const daemon::DaemonPoolOptions& options) {
  auto owned = std::make_shared<OwnedPool>();
  absl::StatusOr<std::unique_ptr<daemon::DaemonPool>> pool = absl::UnknownError("not connected");
  {
    nb::gil_scoped_release unlocked;
    pool = daemon::DaemonPool::Connect(options, owned->clock);
  }
  owned->pool = ValueOrThrow(std::move(pool));
  return std::shared_ptr<store::Pool>(owned, owned->pool.get());
}

class DaemonHandle final : public PoolHandle {
 public:
  using PoolHandle::PoolHandle;
};

void Init(DaemonHandle* self, const std::string& socket_path, double call_deadline) {
  daemon::DaemonPoolOptions options;
  options.socket_path = socket_path;
  options.call_deadline = DurationFrom("call_deadline", call_deadline, absl::Hours(1));
  new (self) DaemonHandle(Connect(options));
}

bool IsConnected(const DaemonHandle& self) {
  // Every DaemonHandle holds what Connect made.
  return static_cast<const daemon::DaemonPool&>(*self.Open()).connected();
}

}  // namespace

void BindDaemonPool(nb::module_& module) {
  nb::class_<DaemonHandle, PoolHandle>(
      module, "DaemonPool",
      "The pool of this machine's daemon (`tenure serve --socket PATH`), shared with other processes.\n\n"
      "socket_path: as given to the daemon. call_deadline: seconds for one exchange with it; later it is a miss.\n"
      "Reconnects by itself: while the daemon is away every call is a miss or PoolUnavailable within the deadline.\n"
      "ValueError names a bad option, PoolUnavailable the socket that nobody serves.")
      .def("__init__", &Init, "socket_path"_a, nb::kw_only(), "call_deadline"_a = 2.0)
      .def_prop_ro("connected", &IsConnected, "Whether calls reach a daemon now.");
}

}  // namespace tenure::python
