// The messages of the P/D side channel as tuples of their fields, in the order of the wire. tenure.pd.wire makes
// objects of them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
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
#include "tenure/base/status.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using Blocks = std::vector<std::vector<int64_t>>;
using Requests = std::vector<std::pair<std::string, std::pair<std::string, Blocks>>>;

std::string_view View(const nb::bytes& message) { return {message.c_str(), message.size()}; }

nb::bytes ToPython(const absl::StatusOr<std::string>& message) {
  ThrowIfError(message.status());
  return nb::bytes(message->data(), message->size());
}

nb::tuple DecodePull(const nb::bytes& message) {
  const pd::Pull pull = ValueOrThrow(pd::DecodePull(View(message)));
  nb::dict requests;
  for (const pd::PullRequest& request : pull.requests) {
    requests[nb::cast(request.request_id)] = nb::make_tuple(request.transfer_id, request.blocks);
  }
  std::vector<uint64_t> bases;
  std::vector<uint64_t> sizes;
  nb::list keys;
  for (const pd::MemoryKey& range : pull.transport.memory) {
    bases.push_back(range.base);
    sizes.push_back(range.size);
    keys.append(nb::bytes(range.key.data(), range.key.size()));
  }
  const nb::bytes address(pull.transport.address.data(), pull.transport.address.size());
  return nb::make_tuple(pull.remote_hostname, pull.remote_port, pull.remote_tp_size, pull.remote_tp_rank, requests,
                        pull.kv_caches_base_addr, pull.block_lens, pull.kv_block_lens, pull.registered_layer_names,
                        pull.registered_layer_indices, pull.registered_group_indices, pull.registered_shared_group_ids,
                        pull.registered_row_offsets, pull.remote_pp_size, pull.kv_lease_duration, pull.remote_pp_rank,
                        pull.transport.kind, address, bases, sizes, keys, pull.answer_within);
}

std::vector<pd::MemoryKey> Memory(const std::vector<uint64_t>& bases, const std::vector<uint64_t>& sizes,
                                  const std::vector<nb::bytes>& keys) {
  if (bases.size() != keys.size() || sizes.size() != keys.size()) {
    ThrowIfError(InvalidArgument("remote_memory has {} bases, {} sizes and {} keys; give one of each a range",
                                 bases.size(), sizes.size(), keys.size()));
  }
  std::vector<pd::MemoryKey> memory;
  for (size_t i = 0; i < keys.size(); ++i) memory.push_back({bases[i], sizes[i], std::string(View(keys[i]))});
  return memory;
}

nb::bytes EncodePull(std::string hostname, int64_t port, int64_t tp_size, int64_t tp_rank, Requests requests,
                     std::vector<uint64_t> base_addresses, std::vector<int64_t> block_lens,
                     std::vector<int64_t> kv_block_lens, std::vector<std::string> layer_names,
                     std::vector<int64_t> layer_indices, std::vector<int64_t> group_indices, Blocks shared_group_ids,
                     std::vector<int64_t> row_offsets, int64_t pp_size, std::optional<double> lease,
                     std::optional<int64_t> pp_rank, std::string transport, const nb::bytes& transport_address,
                     const std::vector<uint64_t>& memory_bases, const std::vector<uint64_t>& memory_sizes,
                     const std::vector<nb::bytes>& memory_keys, std::optional<double> answer_within) {
  pd::Pull pull;
  pull.remote_hostname = std::move(hostname);
  pull.remote_port = port;
  pull.remote_tp_size = tp_size;
  pull.remote_tp_rank = tp_rank;
  for (auto& [request_id, rest] : requests) {
    pull.requests.push_back({std::move(request_id), std::move(rest.first), std::move(rest.second)});
  }
  pull.kv_caches_base_addr = std::move(base_addresses);
  pull.block_lens = std::move(block_lens);
  pull.kv_block_lens = std::move(kv_block_lens);
  pull.registered_layer_names = std::move(layer_names);
  pull.registered_layer_indices = std::move(layer_indices);
  pull.registered_group_indices = std::move(group_indices);
  pull.registered_shared_group_ids = std::move(shared_group_ids);
  pull.registered_row_offsets = std::move(row_offsets);
  pull.remote_pp_size = pp_size;
  pull.kv_lease_duration = lease;
  pull.remote_pp_rank = pp_rank;
  pull.transport = {std::move(transport), std::string(View(transport_address)),
                    Memory(memory_bases, memory_sizes, memory_keys)};
  pull.answer_within = answer_within;
  return ToPython(pd::EncodePull(pull));
}

nb::tuple DecodeReply(const nb::bytes& message) {
  const pd::Reply reply = ValueOrThrow(pd::DecodeReply(View(message)));
  return nb::make_tuple(static_cast<int64_t>(reply.status), reply.ok_requests, reply.err_requests, reply.err_message,
                        reply.unknown_transfer_ids);
}

nb::bytes EncodeReply(int64_t status, std::vector<std::string> ok, std::vector<std::string> failed,
                      std::optional<std::string> message, std::vector<std::string> unknown) {
  CheckRange("status", status, 0, static_cast<int64_t>(pd::ReplyStatus::kError));
  return ToPython(pd::EncodeReply({static_cast<pd::ReplyStatus>(status), std::move(ok), std::move(failed),
                                   std::move(message), std::move(unknown)}));
}

nb::tuple DecodeRenewal(const nb::bytes& message) {
  const pd::Renewal renewal = ValueOrThrow(pd::DecodeRenewal(View(message)));
  return nb::make_tuple(renewal.transfer_ids, renewal.kv_lease_duration);
}

nb::bytes EncodeRenewal(std::vector<std::string> transfer_ids, std::optional<double> lease) {
  return ToPython(pd::EncodeRenewal({std::move(transfer_ids), lease}));
}

}  // namespace

void BindPdWire(nb::module_& module) {
  module.def("pd_decode_pull", &DecodePull, "message"_a, "The fields of tenure.pd.wire.Pull, in its order.");
  module.def("pd_encode_pull", &EncodePull, "remote_hostname"_a, "remote_port"_a, "remote_tp_size"_a,
             "remote_tp_rank"_a, "req_blocks"_a, "kv_caches_base_addr"_a, "block_lens"_a, "kv_block_lens"_a,
             "registered_layer_names"_a, "registered_layer_indices"_a, "registered_group_indices"_a,
             "registered_shared_group_ids"_a, "registered_row_offsets"_a, "remote_pp_size"_a,
             "kv_lease_duration"_a.none(), "remote_pp_rank"_a.none(), "remote_transport"_a,
             "remote_transport_address"_a, "remote_memory_bases"_a, "remote_memory_sizes"_a, "remote_memory_keys"_a,
             "answer_within"_a.none(), "Bytes of a pull; req_blocks as pairs.");
  module.def("pd_decode_reply", &DecodeReply, "message"_a, "The fields of tenure.pd.wire.Reply, in its order.");
  module.def("pd_encode_reply", &EncodeReply, "status"_a, "ok_reqs"_a, "err_reqs"_a, "err_msg"_a.none(),
             "unknown_transfer_ids"_a, "Bytes of a reply.");
  module.def("pd_decode_renewal", &DecodeRenewal, "message"_a, "The fields of tenure.pd.wire.Renewal, in its order.");
  module.def("pd_encode_renewal", &EncodeRenewal, "renew_transfer_ids"_a, "kv_lease_duration"_a.none(),
             "Bytes of a renewal.");
  module.def(
      "pd_is_renewal", [](const nb::bytes& message) { return pd::IsRenewal(View(message)); }, "message"_a,
      "Whether the first key says renewal.");
}

}  // namespace tenure::python
