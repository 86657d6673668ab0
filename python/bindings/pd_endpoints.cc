// The workers' sides of a P/D pair for Python: conversion only. What waits runs without the interpreter's lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/lock_guard.h"
#include "bindings/pd_board.h"
#include "bindings/pd_layout.h"
#include "bindings/pd_transport.h"
#include "bindings/process_mark.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/handoff/bootstrap_client.h"
#include "tenure/handoff/decode_endpoint.h"
#include "tenure/handoff/prefill_endpoint.h"
#include "tenure/pd/pull_layout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using Writes = std::vector<std::tuple<double, int64_t, int64_t>>;  // Seconds, bytes, pieces.
using Counts = std::map<std::string, int64_t>;
using Failed = std::tuple<std::string, std::string, std::vector<std::vector<int64_t>>>;

constexpr size_t kErrorBytesMax = 4096;
constexpr absl::Duration kTimeoutMax = absl::Hours(24 * 7);

std::optional<double> LeaseFrom(std::optional<double> lease) {
  if (lease) DurationFrom("kv_lease_duration", *lease, kTimeoutMax);
  return lease;
}

pd::StepOrders OrdersFrom(const nb::bytes& orders) {
  absl::StatusOr<pd::StepOrders> decoded = absl::UnknownError("not read");
  {
    nb::gil_scoped_release unlocked;
    decoded = pd::DecodeStepOrders(std::string_view(orders.c_str(), orders.size()));
  }
  return ValueOrThrow(std::move(decoded));
}

std::shared_ptr<transfer::Transport> ShareOf(const std::shared_ptr<OwnedTransport>& owned) {
  return {owned, owned->transport.get()};
}

// An endpoint with the transport whose clock it borrows. A forked child leaves its copy as it is.
template <typename Endpoint>
class EndpointHandle {
 public:
  EndpointHandle(std::shared_ptr<OwnedTransport> transport, std::unique_ptr<Endpoint> endpoint)
      : transport_(std::move(transport)), endpoint_(std::move(endpoint)) {}
  ~EndpointHandle() { Close(); }
  EndpointHandle(const EndpointHandle&) = delete;
  EndpointHandle& operator=(const EndpointHandle&) = delete;

  // Error when it is closed.
  Endpoint& Open() const {
    if (endpoint_ == nullptr) Throw(FailedPrecondition("the endpoint is closed"));
    return *endpoint_;
  }
  void Close() {
    if (made_in_.is_forked()) {
      static_cast<void>(endpoint_.release());
      return;
    }
    const LockReleased unlocked;
    endpoint_.reset();
    transport_.reset();
  }

 private:
  const ProcessMark made_in_;
  std::shared_ptr<OwnedTransport> transport_;
  std::unique_ptr<Endpoint> endpoint_;
};

// P's half, and its word to the bootstrap server.
class PrefillHandle : public EndpointHandle<handoff::PrefillEndpoint> {
 public:
  PrefillHandle(std::shared_ptr<OwnedTransport> transport, std::unique_ptr<handoff::PrefillEndpoint> endpoint,
                std::unique_ptr<handoff::BootstrapClient> bootstrap, pd::WorkerRegistration registration)
      : EndpointHandle(std::move(transport), std::move(endpoint)),
        bootstrap_(std::move(bootstrap)),
        registration_(std::move(registration)) {}

  void Register() {
    pd::WorkerRegistration registration = registration_;
    registration.address = Open().address();
    absl::Status status;
    {
      nb::gil_scoped_release unlocked;
      status = bootstrap_->Register(registration);
    }
    ThrowIfError(status);
  }

 private:
  std::unique_ptr<handoff::BootstrapClient> bootstrap_;
  pd::WorkerRegistration registration_;
};
using DecodeHandle = EndpointHandle<handoff::DecodeEndpoint>;

void InitPrefill(PrefillHandle* self, const std::vector<pd::KvRegion>& regions, const TransportHandle& transport,
                 const RankTuple& rank, int64_t total_kv_heads, bool is_mla, const GroupTuples& groups,
                 const std::string& host, const std::string& engine_id, int64_t dp_rank, int64_t incarnation,
                 const std::string& bootstrap_url, const std::string& bootstrap_token, std::optional<double> lease,
                 double hold_timeout, double connector_timeout, const std::optional<std::string>& curve_secret_key,
                 const BoardHandle& board, int register_attempts) {
  const std::shared_ptr<OwnedTransport> owned = transport.Open();
  handoff::PrefillEndpointOptions options;
  if (LeaseFrom(lease)) options.producer.handoff.lease = absl::Seconds(*lease);
  options.producer.handoff.hold_timeout = DurationFrom("hold_timeout", hold_timeout, kTimeoutMax);
  options.router.host = host;
  options.router.curve_secret_key = curve_secret_key;
  handoff::BootstrapClientOptions client;
  client.timeout = DurationFrom("connector_timeout", connector_timeout, kTimeoutMax);
  client.token = bootstrap_token;
  client.register_attempts = register_attempts;
  auto bootstrap = ValueOrThrow(handoff::BootstrapClient::Create(bootstrap_url, client));
  const auto& [tp_size, tp_rank, pp_size, pp_rank] = rank;
  pd::WorkerRegistration registration{engine_id, dp_rank, tp_rank, pp_rank, "", lease, incarnation, tp_size, pp_size};
  auto endpoint = ValueOrThrow(handoff::PrefillEndpoint::Start(options, LayoutFrom(regions, rank),
                                                               TraitsFrom(total_kv_heads, is_mla, groups),
                                                               ShareOf(owned), board.board(), owned->clock));
  new (self) PrefillHandle(owned, std::move(endpoint), std::move(bootstrap), std::move(registration));
}

void InitDecode(DecodeHandle* self, const std::vector<pd::KvRegion>& regions, const TransportHandle& transport,
                const RankTuple& rank, int64_t total_kv_heads, bool is_mla, const GroupTuples& groups,
                const std::string& host, std::optional<double> lease, double connector_timeout,
                const std::optional<std::string>& curve_server_key, const BoardHandle& board) {
  const std::shared_ptr<OwnedTransport> owned = transport.Open();
  const pd::KvLayout layout = LayoutFrom(regions, rank);
  ThrowIfError(pd::CheckKvLayout(layout, TraitsFrom(total_kv_heads, is_mla, groups)));
  handoff::DecodeEndpointOptions options;
  pd::Pull& worker = options.consumer.worker;
  worker.remote_hostname = host;
  pd::WritePullLayout(layout, worker);
  worker.kv_lease_duration = LeaseFrom(lease);
  options.links.bootstrap.timeout = DurationFrom("connector_timeout", connector_timeout, kTimeoutMax);
  options.links.channels.curve_server_key = curve_server_key;
  auto endpoint = ValueOrThrow(handoff::DecodeEndpoint::Start(options, ShareOf(owned), board.board(), owned->clock));
  new (self) DecodeHandle(owned, std::move(endpoint));
}

std::pair<Writes, Counts> PrefillStats(const PrefillHandle& self) {
  const handoff::PrefillEndpointStats stats = self.Open().TakeStats();
  const pd::ProducerStats& producer = stats.producer;
  Writes writes;
  for (const pd::WriteSample& write : producer.writes) {
    writes.emplace_back(absl::ToDoubleSeconds(write.duration), write.bytes, write.pieces);
  }
  return {std::move(writes),
          {{"num_failed_transfers", producer.failed_transfers},
           {"num_kv_expired_reqs", producer.expired_requests},
           {"unsampled_writes", producer.unsampled_writes},
           {"pulls", producer.pulls},
           {"renewals", producer.renewals},
           {"late_pulls", producer.late_pulls},
           {"timed_out_pulls", producer.timed_out_pulls},
           {"refused_requests", producer.refused_requests},
           {"malformed_messages", producer.malformed_messages},
           {"repeated_messages", producer.repeated_messages},
           {"refused_pulls", producer.refused_pulls},
           {"prefill_lease_mismatches", producer.lease_mismatches},
           {"overdue_writes", producer.overdue_writes}}};
}

std::pair<Writes, Counts> DecodeStats(const DecodeHandle& self) {
  const pd::ConsumerStats stats = self.Open().TakeStats();
  return {{},
          {{"num_failed_recvs", stats.failed_receives},
           {"received", stats.received},
           {"sent_pulls", stats.pulls},
           {"failed_queries", stats.failed_queries},
           {"lost_channels", stats.lost_channels},
           {"ended_workers", stats.ended_workers},
           {"malformed_replies", stats.malformed_replies},
           {"decode_lease_mismatches", stats.lease_mismatches}}};
}

using Failing = std::pair<std::string, std::string>;  // Request and reason.

// What peers say of an error is in the reasons, and Python takes UTF-8 alone: one that is none would end the engine.
std::tuple<std::vector<std::string>, std::vector<Failed>, std::vector<Failing>> TakeOutcomes(const DecodeHandle& self) {
  handoff::DecodeOutcomes outcomes = self.Open().TakeOutcomes();
  std::vector<Failed> failed;
  for (pd::FailedPull& pull : outcomes.failed) {
    failed.emplace_back(std::move(pull.request_id), OneLine(pull.error, kErrorBytesMax), std::move(pull.blocks));
  }
  std::vector<Failing> failing;
  for (pd::FailingPull& pull : outcomes.failing) {
    failing.emplace_back(std::move(pull.request_id), OneLine(pull.error, kErrorBytesMax));
  }
  return {std::move(outcomes.received), std::move(failed), std::move(failing)};
}

void BindPrefill(nb::module_& module) {
  nb::class_<PrefillHandle>(
      module, "PrefillWorker",
      "A prefill worker on the network: takes pulls and renewals, writes KV, answers.\n\n"
      "rank: (TP size, TP rank, PP size, PP rank). groups: (holds recurrent states, kernel blocks of a block) of each "
      "transfer group. host: the IP address to listen on. incarnation: larger for each start of the engine, the same "
      "in "
      "all its workers. bootstrap_url: http://HOST:PORT. lease: seconds, None for off. hold_timeout: how long a "
      "finished prefill is held without a lease, and a pull waits for one that has not finished. curve_secret_key: of "
      "the side channel, None: in the clear. register_attempts: with pauses of 1 s, 2 s, then up to 10 s, since the "
      "server\n"
      "may start later. It listens at once, and is told to nobody before register().")
      .def("__init__", &InitPrefill, "regions"_a, "transport"_a, nb::kw_only(), "rank"_a, "total_kv_heads"_a,
           "is_mla"_a, "groups"_a, "host"_a, "engine_id"_a, "dp_rank"_a, "incarnation"_a, "bootstrap_url"_a,
           "bootstrap_token"_a, "lease"_a.none(), "hold_timeout"_a, "connector_timeout"_a, "curve_secret_key"_a.none(),
           "board"_a, "register_attempts"_a = 9)
      .def(
          "register", &PrefillHandle::Register,
          "Tells the bootstrap server; waits for it. PoolUnavailable when it cannot be reached, Error when it refuses.")
      .def_prop_ro(
          "address", [](const PrefillHandle& self) { return self.Open().address(); }, "tcp://IP:PORT.")
      .def(
          "record_step",
          [](const PrefillHandle& self, const nb::bytes& orders) { self.Open().RecordStep(OrdersFrom(orders)); },
          "orders"_a, "The orders of PrefillScheduler.take_orders.")
      .def(
          "take_finished", [](const PrefillHandle& self) { return self.Open().TakeFinished(); },
          "Requests whose blocks this worker needs no more, each once.")
      .def("take_stats", &PrefillStats, "Writes as (seconds, bytes, pieces), and counts, since the last call.")
      .def("close", &PrefillHandle::Close, "Ends it; pulls under way get no answer. Idempotent.");
}

void BindDecode(nb::module_& module) {
  nb::class_<DecodeHandle>(module, "DecodeWorker",
                           "A decode worker on the network: pulls KV from prefill workers into its blocks.\n\n"
                           "rank, groups, lease: as for PrefillWorker. host: this machine's name in messages. "
                           "curve_server_key: P's public key, None: in the clear.")
      .def("__init__", &InitDecode, "regions"_a, "transport"_a, nb::kw_only(), "rank"_a, "total_kv_heads"_a, "is_mla"_a,
           "groups"_a, "host"_a, "lease"_a.none(), "connector_timeout"_a, "curve_server_key"_a.none(), "board"_a)
      .def(
          "start_pulls",
          [](const DecodeHandle& self, const nb::bytes& orders) { self.Open().StartPulls(OrdersFrom(orders)); },
          "orders"_a, "The orders of DecodeScheduler.take_orders.")
      .def("take_outcomes", &TakeOutcomes,
           "(requests that have their KV, [(request, why it has failed, its blocks)], [(request, why it will fail)]), "
           "each once; nothing writes into the blocks of the first two any more, and may write into those of the last.")
      .def("take_stats", &DecodeStats, "As PrefillWorker.take_stats; a decode worker writes nothing.")
      .def("close", &DecodeHandle::Close, "Ends it; pulls under way have no outcome. Idempotent.");
}

}  // namespace

void BindPdEndpoints(nb::module_& module) {
  BindPrefill(module);
  BindDecode(module);
}

}  // namespace tenure::python
