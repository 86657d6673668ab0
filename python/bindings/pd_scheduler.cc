// The scheduler's sides of a P/D pair, for the vLLM glue: conversion only, and the clock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/pd/decode_scheduler.h"
#include "tenure/pd/prefill_scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using pd::TransferGroups;
using Windows = std::vector<std::pair<int64_t, int64_t>>;  // Tokens of a window (0: none) and of a block.
using Track = std::tuple<std::string, std::string, std::string, std::string, double>;

TransferGroups GroupsFrom(const Windows& windows) {
  std::vector<TransferGroups::Group> groups;
  for (const auto& [window, block] : windows) {
    groups.push_back({TokensFrom("window", window).value(), TokensFrom("block", block, 1).value()});
  }
  return TransferGroups(std::move(groups));
}

TransferGroups::Blocks BlocksFrom(const TransferGroups::Blocks& blocks, size_t groups) {
  if (!blocks.empty() && blocks.size() != groups) {
    Throw(InvalidArgument("blocks has {} lists; give one a transfer group, {}", blocks.size(), groups));
  }
  return blocks;
}

nb::bytes ToPython(const pd::StepOrders& orders) {
  const std::string bytes = ValueOrThrow(pd::EncodeStepOrders(orders));
  return nb::bytes(bytes.data(), bytes.size());
}

// Their names are theirs alone: nanobind takes types of one name for one type, also in unnamed namespaces.
// Both are called from the engine's scheduler alone; the interpreter's lock is kept, so calls cannot overlap.
class PrefillSchedulerHandle {
 public:
  explicit PrefillSchedulerHandle(const Windows& windows) : groups_(windows.size()), core_(GroupsFrom(windows)) {}

  void Scheduled(const std::string& request, const std::string& transfer) {
    ThrowIfError(core_.Scheduled(request, transfer));
  }
  bool Finished(const std::string& request, const std::string& transfer, bool whole,
                const TransferGroups::Blocks& blocks) {
    const auto end = whole ? pd::PrefillScheduler::End::kWhole : pd::PrefillScheduler::End::kOther;
    return core_.Finished(request, transfer, end, BlocksFrom(blocks, groups_));
  }
  bool Sent(const std::string& request) { return core_.Sent(request); }
  bool HasOrders() const { return core_.has_orders(); }
  nb::bytes TakeOrders() { return ToPython(core_.TakeOrders()); }
  size_t NumKept() const { return core_.num_kept(); }

 private:
  size_t groups_;
  pd::PrefillScheduler core_;
};

class DecodeSchedulerHandle {
 public:
  DecodeSchedulerHandle(const Windows& windows, bool keeps_last_token, double request_timeout)
      : groups_(windows.size()),
        core_(GroupsFrom(windows),
              {keeps_last_token, DurationFrom("request_timeout", request_timeout, absl::Hours(24 * 365))}) {}

  void Arrived(const std::string& request, const std::string& transfer, const std::string& engine,
               const std::string& bootstrap) {
    ThrowIfError(core_.Arrived(request, {transfer, engine, bootstrap}, clock_.Now()));
  }
  int64_t Offered(const std::string& request, int64_t num_prompt_tokens, int64_t computed) {
    return core_
        .Offered(request, TokensFrom("num_prompt_tokens", num_prompt_tokens), TokensFrom("computed", computed),
                 clock_.Now())
        .value();
  }
  void Allocated(const std::string& request, const TransferGroups::Blocks& blocks, int64_t num_external) {
    core_.Allocated(request, BlocksFrom(blocks, groups_), TokensFrom("num_external", num_external));
  }
  void Finished(const std::string& request) { core_.Finished(request); }
  std::string Gone(const std::string& engine, const std::string& transfer) { return core_.Gone(engine, transfer); }
  bool Settled(const std::string& request) { return core_.Settled(request); }
  bool HasOrders() const { return core_.has_orders(); }
  nb::bytes TakeOrders() { return ToPython(core_.TakeOrders(clock_.Now())); }
  std::pair<std::vector<std::string>, std::vector<Track>> TakeRenewals() {
    pd::DecodeScheduler::Renewals renewals = core_.TakeRenewals(clock_.Now());
    std::vector<Track> tracked;
    for (auto& [request, remote, remaining] : renewals.tracked) {
      tracked.emplace_back(std::move(request), std::move(remote.transfer_id), std::move(remote.engine_id),
                           std::move(remote.bootstrap_address), absl::ToDoubleSeconds(remaining));
    }
    return {std::move(renewals.stopped), std::move(tracked)};
  }
  size_t NumPending() const { return core_.num_pending(); }

 private:
  const MonotonicClock clock_;
  size_t groups_;
  pd::DecodeScheduler core_;
};

void BindPrefill(nb::module_& module) {
  nb::class_<PrefillSchedulerHandle>(
      module, "PrefillScheduler",
      "Which requests a prefill engine announces, finishes and aborts in a step.\n\n"
      "groups: (tokens of the sliding window or 0, tokens of a block) of each transfer group. One thread.")
      .def(nb::init<const Windows&>(), "groups"_a)
      .def("scheduled", &PrefillSchedulerHandle::Scheduled, "request"_a, "transfer_id"_a,
           "The engine schedules the request. ValueError, once a request, when its KV cannot be handed over.")
      .def("finished", &PrefillSchedulerHandle::Finished, "request"_a, "transfer_id"_a, "whole"_a, "blocks"_a,
           "The request has ended; whole: its prompt is computed. True: keep it and its blocks until sent.")
      .def("sent", &PrefillSchedulerHandle::Sent, "request"_a,
           "Every worker has reported it. False: none that is kept, so not for the engine.")
      .def_prop_ro("has_orders", &PrefillSchedulerHandle::HasOrders, "Whether take_orders has something.")
      .def("take_orders", &PrefillSchedulerHandle::TakeOrders,
           "What has come since the last call, as bytes for every worker.")
      .def_prop_ro("num_kept", &PrefillSchedulerHandle::NumKept, "Requests whose blocks are kept.");
}

void BindDecode(nb::module_& module) {
  nb::class_<DecodeSchedulerHandle>(
      module, "DecodeScheduler",
      "What a decode engine is offered, pulls and renews.\n\n"
      "groups: as for PrefillScheduler. keeps_last_token: a model with recurrent states. request_timeout: seconds from "
      "a request's arrival. One thread.")
      .def(nb::init<const Windows&, bool, double>(), "groups"_a, nb::kw_only(), "keeps_last_token"_a,
           "request_timeout"_a)
      .def("arrived", &DecodeSchedulerHandle::Arrived, "request"_a, "transfer_id"_a, "engine_id"_a,
           "bootstrap_address"_a,
           "A new request that wants a prefill; an empty text is a missing field. ValueError: it is computed here.")
      .def("offered", &DecodeSchedulerHandle::Offered, "request"_a, "num_prompt_tokens"_a, "computed"_a,
           "Tokens past `computed` that a pull brings.")
      .def("allocated", &DecodeSchedulerHandle::Allocated, "request"_a, "blocks"_a, "num_external"_a,
           "The engine has blocks for the offer; 0 tokens only releases P's.")
      .def("finished", &DecodeSchedulerHandle::Finished, "request"_a,
           "The request has ended; a pull under way goes on.")
      .def("gone", &DecodeSchedulerHandle::Gone, "engine_id"_a, "transfer_id"_a,
           "P holds the transfer no more. The request that is computed here then, or an empty text for none.")
      .def("settled", &DecodeSchedulerHandle::Settled, "request"_a,
           "Every worker has settled its pull. False: no such pull, so not for the engine.")
      .def_prop_ro("has_orders", &DecodeSchedulerHandle::HasOrders, "Whether take_orders has something.")
      .def("take_orders", &DecodeSchedulerHandle::TakeOrders,
           "What has come since the last call, as bytes for every worker.")
      .def("take_renewals", &DecodeSchedulerHandle::TakeRenewals,
           "(requests to renew no more, [(request, transfer id, engine id, bootstrap address, seconds left)]).")
      .def_prop_ro("num_pending", &DecodeSchedulerHandle::NumPending,
                   "Requests to be pulled, or whose pull is under way.");
}

}  // namespace

void BindPdScheduler(nb::module_& module) {
  BindPrefill(module);
  BindDecode(module);
}

}  // namespace tenure::python
