#include "bindings/pd_transport.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/bind.h"
#include "bindings/lock_guard.h"
#include "bindings/mooncake_transport.h"
#include "tenure/transfer/transports.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

constexpr int kThreadsMax = 64;

// Those over Mooncake that live, under the interpreter's lock. A thread that wants that lock while the interpreter goes
// away would end the process, so their threads are ended before.
std::vector<std::weak_ptr<OwnedTransport>>& Living() {
  static std::vector<std::weak_ptr<OwnedTransport>> living;
  return living;
}
void StopAll() {
  for (const auto& weak : std::exchange(Living(), {})) {
    if (const auto owned = weak.lock()) static_cast<MooncakeTransport&>(*owned->transport).Stop();
  }
}

void Init(TransportHandle* self, const std::string& kind, const std::string& host) {
  auto owned = std::make_shared<OwnedTransport>();
  owned->transport = ValueOrThrow(transfer::CreateTransport(kind, host, owned->clock));
  new (self) TransportHandle(std::move(owned));
}

TransportHandle Mooncake(nb::object engine, const std::string& host, int port, int threads,
                         nb::object on_thread_start) {
  CheckRange("threads", threads, 1, kThreadsMax);
  CheckRange("port", port, 1, 65'535);
  const std::string session =
      host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
  auto owned = std::make_shared<OwnedTransport>();
  owned->transport = std::make_unique<MooncakeTransport>(std::move(engine), session, threads,
                                                         std::move(on_thread_start), owned->clock);
  std::erase_if(Living(), [](const auto& weak) { return weak.expired(); });
  Living().push_back(owned);
  return TransportHandle(std::move(owned));
}

void Register(const TransportHandle& self, const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  const std::shared_ptr<OwnedTransport> owned = self.Open();
  std::vector<transfer::MemoryRange> memory;
  for (const auto& [address, size] : ranges) memory.push_back({address, size});
  absl::Status status;
  {
    nb::gil_scoped_release unlocked;
    status = owned->transport->Register(memory);
  }
  ThrowIfError(status);
}

}  // namespace

void TransportHandle::Close() {
  const LockReleased unlocked;  // Its threads may need the lock to end.
  owned_.reset();
}

void BindPdTransport(nb::module_& module) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&StopAll));
  nb::class_<TransportHandle>(
      module, "Transport",
      "What carries KV into a decode worker's memory; both engines of a pair need the same kind.\n\n"
      "kind: 'auto', 'local', 'tcp' or 'ucx'. host: the address of this machine that peers on other hosts reach. "
      "PoolUnavailable when the machine lacks what the kind needs; ValueError for a host that is none of this machine.")
      .def("__init__", &Init, "kind"_a, nb::kw_only(), "host"_a = "127.0.0.1")
      .def_static("mooncake", &Mooncake, "engine"_a, "host"_a, "port"_a, nb::kw_only(), "threads"_a,
                  "on_thread_start"_a.none() = nb::none(),
                  "Over an initialized mooncake.engine.TransferEngine that peers open as host:port. on_thread_start is "
                  "called in each of its threads before their first write.")
      .def_prop_ro(
          "kind", [](const TransportHandle& self) { return std::string(self.Open()->transport->kind()); },
          "Its kind, as peers see it.")
      .def("register", &Register, "ranges"_a,
           "Lets peers write to these (address, bytes), and this process write from them. The memory must outlive "
           "close().")
      .def("close", &TransportHandle::Close, "Ends it when no endpoint uses it any more. Idempotent.");
}

}  // namespace tenure::python
