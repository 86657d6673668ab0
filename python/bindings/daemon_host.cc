// A daemon's core on a thread of this process, for an engine whose processes share one pool.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/pool_options.h"
#include "bindings/process_mark.h"
#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/daemon/pool_host.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

class DaemonHost {
 public:
  explicit DaemonHost(std::unique_ptr<daemon::PoolHost> host) : host_(std::move(host)) {
    thread_ = std::thread([this] {
      if (const absl::Status status = host_->server().Run(); !status.ok()) {
        LogError("the pool of this engine is no longer served: {}", Message(status));
      }
    });
  }
  ~DaemonHost() {
    if (!made_in_.is_forked()) {
      Close();
      return;
    }
    static_cast<void>(host_.release());
    static_cast<void>(new std::thread(std::move(thread_)));
  }
  DaemonHost(const DaemonHost&) = delete;
  DaemonHost& operator=(const DaemonHost&) = delete;

  // Waits for the drain. Idempotent; one thread.
  void Close() {
    if (!thread_.joinable() || made_in_.is_forked()) return;
    nb::gil_scoped_release unlocked;
    host_->server().Stop();
    thread_.join();
    host_ = nullptr;
  }

 private:
  const ProcessMark made_in_;
  std::unique_ptr<daemon::PoolHost> host_;
  std::thread thread_;
};

void Init(DaemonHost* self, const std::string& socket_path, const SizeArgument& capacity, const std::string& mode) {
  daemon::PoolHostOptions options;
  options.socket = socket_path;
  options.memory = Bytes(BytesFrom("capacity", capacity));
  options.memory -= options.memory % options.slab_bytes;
  options.mode = ModeFrom(mode);
  options.drain_timeout = absl::Seconds(2);  // The engine ends with it, and so do the copies.
  CheckMachine(options.memory.value());
  absl::StatusOr<std::unique_ptr<daemon::PoolHost>> host = absl::UnknownError("not made");
  {
    nb::gil_scoped_release unlocked;  // Taking all pages takes a while.
    host = daemon::PoolHost::Create(options);
    if (host.ok()) {
      if (const absl::Status listening = (*host)->server().Listen(); !listening.ok()) host = listening;
    }
  }
  new (self) DaemonHost(ValueOrThrow(std::move(host)));
}

}  // namespace

void BindDaemonHost(nb::module_& module) {
  nb::class_<DaemonHost>(
      module, "DaemonHost",
      "The core of `tenure serve` on a thread of this process: other processes of this user connect with "
      "DaemonPool.\n\n"
      "socket_path: absolute; mode 0600. capacity: bytes, or text such as '8GiB', rounded down to whole slabs of 64 "
      "MiB; "
      "all\n"
      "taken here. mode: as of EmbeddedPool. ValueError names the option, Error the daemon that holds the path.")
      .def("__init__", &Init, "socket_path"_a, "capacity"_a, nb::kw_only(), "mode"_a = "closed")
      .def("close", &DaemonHost::Close, "Ends the service after copies that run; clients then miss. Idempotent.");
}

}  // namespace tenure::python
