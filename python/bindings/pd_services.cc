// What a P/D pair runs once an engine: the bootstrap server, the sender of renewals, the list of lease mismatches. And
// the keys of its side channel.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/lock_guard.h"
#include "bindings/pd_board.h"
#include "bindings/process_mark.h"
#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/handoff/bootstrap_server.h"
#include "tenure/handoff/curve_keys.h"
#include "tenure/handoff/renewal_sender.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

constexpr absl::Duration kTimeMax = absl::Hours(24 * 7);

// A service with a clock for it. A forked child leaves its copy as it is.
template <typename Service>
class ServiceHandle {
 public:
  // `start` takes the clock and gives a StatusOr<unique_ptr<Service>>.
  template <typename Start>
  explicit ServiceHandle(Start start) : service_(ValueOrThrow(start(clock_))) {}
  ~ServiceHandle() { Close(); }
  ServiceHandle(const ServiceHandle&) = delete;
  ServiceHandle& operator=(const ServiceHandle&) = delete;

  // Error when it is closed.
  Service& Open() const {
    if (service_ == nullptr) Throw(FailedPrecondition("the service is closed"));
    return *service_;
  }
  void Close() {
    if (made_in_.is_forked()) {
      static_cast<void>(service_.release());
      return;
    }
    const LockReleased unlocked;
    service_.reset();
  }

 private:
  const ProcessMark made_in_;
  const MonotonicClock clock_;
  std::unique_ptr<Service> service_;
};
using BootstrapHandle = ServiceHandle<handoff::BootstrapServer>;
using SenderHandle = ServiceHandle<handoff::RenewalSender>;

void InitBootstrap(BootstrapHandle* self, const std::string& host, int port, const std::string& token,
                   const BoardHandle& board) {
  CheckRange("port", port, 0, 65'535);
  handoff::BootstrapServerOptions options;
  options.address = {.host = host, .port = port};
  if (!token.empty()) options.token = token;
  options.status = [board = board.board()] { return board->ToJson(); };
  new (self) BootstrapHandle([&](const Clock&) { return handoff::BootstrapServer::Start(options); });
}

void InitSender(SenderHandle* self, double lease, std::optional<double> renew_without_step, double connector_timeout,
                const std::optional<std::string>& curve_server_key) {
  handoff::RenewalSenderOptions options{.schedule = {.lease = DurationFrom("kv_lease_duration", lease, kTimeMax)}};
  if (renew_without_step) {
    options.schedule.renew_without_step = DurationFrom("renew_without_step", *renew_without_step, kTimeMax);
  }
  options.links.bootstrap.timeout = DurationFrom("connector_timeout", connector_timeout, kTimeMax);
  options.links.channels.curve_server_key = curve_server_key;
  new (self) SenderHandle([&](const Clock& clock) { return handoff::RenewalSender::Start(options, clock); });
}

void Track(const SenderHandle& self, const std::string& request, const std::string& transfer_id,
           const std::string& engine_id, const std::string& bootstrap_address, double seconds) {
  ThrowIfError(self.Open().Track(request, transfer_id, engine_id, bootstrap_address, absl::Seconds(seconds)));
}

std::vector<std::pair<std::string, std::string>> TakeGone(const SenderHandle& self) {
  std::vector<std::pair<std::string, std::string>> gone;
  for (auto& [engine_id, transfer_id] : self.Open().TakeGone()) {
    gone.emplace_back(std::move(engine_id), std::move(transfer_id));
  }
  return gone;
}

std::map<std::string, int64_t> SenderStats(const SenderHandle& self) {
  const pd::RenewerStats stats = self.Open().TakeStats();
  return {{"sent_renewals", stats.sent},
          {"lost_renewals", stats.lost},
          {"failed_renewal_queries", stats.failed_queries},
          {"refusing_engines", stats.refusing_engines},
          {"renewal_lease_mismatches", stats.lease_mismatches},
          {"gone_transfers", stats.gone_transfers}};
}

void BindSender(nb::module_& module) {
  nb::class_<SenderHandle>(
      module, "RenewalSender",
      "Renews the leases of the transfers that a decode engine wants, from a thread of its own.\n\n"
      "lease: kv_lease_duration in seconds, the same as P's. renew_without_step: seconds that renewals go on while the "
      "scheduler does not step, None for 10 leases. curve_server_key: P's public key, None: in the clear.")
      .def("__init__", &InitSender, "lease"_a, nb::kw_only(), "renew_without_step"_a.none(), "connector_timeout"_a,
           "curve_server_key"_a.none())
      .def("track", &Track, "request"_a, "transfer_id"_a, "engine_id"_a, "bootstrap_address"_a, "seconds"_a,
           "Renews it until stop, or for so many seconds. ValueError for an id that no message carries.")
      .def(
          "stop", [](const SenderHandle& self, const std::string& request) { self.Open().Stop(request); }, "request"_a,
          "Renews it no more.")
      .def(
          "stepped", [](const SenderHandle& self) { self.Open().Stepped(); }, "The scheduler's loop runs.")
      .def("take_gone", &TakeGone, "(engine id, transfer id) that P held and holds no more, since the last call.")
      .def("take_stats", &SenderStats, "Counts since the last call.")
      .def("close", &SenderHandle::Close, "Ends it. Idempotent.");
}

std::pair<std::string, std::string> MakeKeys() {
  handoff::CurveKeys keys = ValueOrThrow(handoff::MakeCurveKeys());
  return {std::move(keys.public_key), std::move(keys.secret_key)};
}

void CheckKey(const std::string& what, const std::string& key) { ThrowIfError(handoff::CheckCurveKey(what, key)); }

void BindCurve(nb::module_& module) {
  module.def("pd_make_curve_keys", &MakeKeys,
             "A new pair: the public and the secret key, 40 characters each. PoolUnavailable without CURVE.");
  module.def("pd_check_curve_key", &CheckKey, "what"_a, "key"_a,
             "ValueError, with `what` but not the key, for a text that is none. PoolUnavailable without CURVE.");
}

}  // namespace

void BindPdServices(nb::module_& module) {
  nb::class_<BoardHandle>(module, "MismatchBoard",
                          "The last pairs of engines with different leases that this process has met.")
      .def(nb::init<>())
      .def(
          "to_json", [](const BoardHandle& self) { return self.board()->ToJson(); },
          "What GET /status of a bootstrap server shows.");
  nb::class_<BootstrapHandle>(
      module, "BootstrapServer",
      "Tells decode engines where prefill workers listen; listens when it is made.\n\n"
      "port 0: any free one. token: what who registers must say; empty for none. ValueError with the address when it "
      "cannot be listened on.")
      .def("__init__", &InitBootstrap, "host"_a, "port"_a, nb::kw_only(), "token"_a, "board"_a)
      .def_prop_ro(
          "port", [](const BootstrapHandle& self) { return self.Open().port(); }, "Where it listens.")
      .def("close", &BootstrapHandle::Close, "Ends it. Idempotent.");
  BindSender(module);
  BindCurve(module);
}

}  // namespace tenure::python
