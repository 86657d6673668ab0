#include "tenure/pd/pull.h"

#include <algorithm>
#include <array>

#include "tenure/base/status.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

constexpr std::array<std::string_view, 22> kFields = {"remote_hostname",
                                                      "remote_port",
                                                      "remote_tp_size",
                                                      "remote_tp_rank",
                                                      "req_blocks",
                                                      "kv_caches_base_addr",
                                                      "block_lens",
                                                      "kv_block_lens",
                                                      "registered_layer_names",
                                                      "registered_layer_indices",
                                                      "registered_group_indices",
                                                      "registered_shared_group_ids",
                                                      "registered_row_offsets",
                                                      "remote_pp_size",
                                                      "kv_lease_duration",
                                                      "remote_pp_rank",
                                                      "remote_transport",
                                                      "remote_transport_address",
                                                      "remote_memory_bases",
                                                      "remote_memory_sizes",
                                                      "remote_memory_keys",
                                                      "answer_within"};
constexpr size_t kRequired = 8;

// The three fields of memory as they come; one key a range once all have been read.
struct MemoryLists {
  std::vector<uint64_t> bases;
  std::vector<uint64_t> sizes;
  std::vector<std::string> keys;
};

bool HasRequestTwice(const std::vector<PullRequest>& requests) {
  std::vector<std::string_view> ids;
  ids.reserve(requests.size());
  for (const PullRequest& request : requests) ids.push_back(request.request_id);
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

void WriteRequests(MsgpackWriter& writer, const std::vector<PullRequest>& requests) {
  writer.Map(requests.size());
  for (const PullRequest& request : requests) {
    writer.Text(request.request_id);
    writer.Array(2);
    writer.Text(request.transfer_id);
    writer.Value(request.blocks);
  }
}

void ReadRequests(MsgpackReader& reader, std::vector<PullRequest>& requests) {
  const size_t count = reader.Map();
  if (count > kPullRequestsMax) return reader.Fail("has too many requests");
  // A request takes at least four bytes: two texts and two lists.
  requests.reserve(std::min(count, reader.left() / 4));
  for (size_t i = 0; i < count && !reader.failed(); ++i) {
    PullRequest& request = requests.emplace_back();
    reader.Read(request.request_id);
    if (reader.Array(2) != 2) reader.Fail("has a request that is not a pair of transfer id and blocks");
    reader.Read(request.transfer_id);
    reader.Read(request.blocks);
  }
  if (requests.size() > 1 && HasRequestTwice(requests)) reader.Fail("has a request id twice");
}

void ReadKeys(MsgpackReader& reader, std::vector<std::string>& keys) {
  const size_t count = reader.Array(kMemoryKeysMax);
  keys.reserve(count);
  for (size_t i = 0; i < count && !reader.failed(); ++i) reader.ReadBytes(keys.emplace_back());
}

void ReadField(MsgpackReader& reader, size_t field, Pull& pull, MemoryLists& memory) {
  switch (field) {
    case 0:
      return reader.Read(pull.remote_hostname);
    case 1:
      return reader.Read(pull.remote_port);
    case 2:
      return reader.Read(pull.remote_tp_size);
    case 3:
      return reader.Read(pull.remote_tp_rank);
    case 4:
      return ReadRequests(reader, pull.requests);
    case 5:
      return reader.Read(pull.kv_caches_base_addr);
    case 6:
      return reader.Read(pull.block_lens);
    case 7:
      return reader.Read(pull.kv_block_lens);
    case 8:
      return reader.Read(pull.registered_layer_names);
    case 9:
      return reader.Read(pull.registered_layer_indices);
    case 10:
      return reader.Read(pull.registered_group_indices);
    case 11:
      return reader.Read(pull.registered_shared_group_ids);
    case 12:
      return reader.Read(pull.registered_row_offsets);
    case 13:
      return reader.Read(pull.remote_pp_size);
    case 14:
      return reader.Read(pull.kv_lease_duration);
    case 15:
      return reader.Read(pull.remote_pp_rank);
    case 16:
      return reader.Read(pull.transport.kind);
    case 17:
      return reader.ReadBytes(pull.transport.address);
    case 18:
      return reader.Read(memory.bases);
    case 19:
      return reader.Read(memory.sizes);
    case 20:
      return ReadKeys(reader, memory.keys);
    default:
      return reader.Read(pull.answer_within);
  }
}

absl::Status JoinMemory(MemoryLists& lists, std::vector<MemoryKey>& memory) {
  const size_t count = lists.keys.size();
  if (lists.bases.size() != count || lists.sizes.size() != count) {
    return InvalidArgument("pull: remote_memory has {} bases, {} sizes and {} keys; send one of each a range",
                           lists.bases.size(), lists.sizes.size(), count);
  }
  for (size_t i = 0; i < count; ++i) memory.push_back({lists.bases[i], lists.sizes[i], std::move(lists.keys[i])});
  return absl::OkStatus();
}

absl::Status CheckLists(std::string_view what, const std::vector<std::vector<int64_t>>& lists) {
  TENURE_RETURN_IF_ERROR(CheckItems(what, lists.size()));
  for (const std::vector<int64_t>& list : lists) TENURE_RETURN_IF_ERROR(CheckItems(what, list.size()));
  return absl::OkStatus();
}

absl::Status CheckTransport(const TransportAddress& transport) {
  TENURE_RETURN_IF_ERROR(CheckText("pull: remote_transport", transport.kind));
  TENURE_RETURN_IF_ERROR(CheckBytes("pull: remote_transport_address", transport.address));
  if (transport.memory.size() > kMemoryKeysMax) {
    return InvalidArgument("pull: {} ranges of memory; register at most {}", transport.memory.size(), kMemoryKeysMax);
  }
  for (const MemoryKey& range : transport.memory) {
    TENURE_RETURN_IF_ERROR(CheckBytes("pull: remote_memory_keys", range.key));
  }
  return absl::OkStatus();
}

absl::Status CheckPull(const Pull& pull) {
  if (pull.requests.size() > kPullRequestsMax) {
    return InvalidArgument("pull: {} requests; put at most {} into a message", pull.requests.size(), kPullRequestsMax);
  }
  if (HasRequestTwice(pull.requests)) return InvalidArgument("pull: req_blocks has a request id twice; give it once");
  TENURE_RETURN_IF_ERROR(CheckText("pull: remote_hostname", pull.remote_hostname));
  for (const PullRequest& request : pull.requests) {
    TENURE_RETURN_IF_ERROR(CheckText("pull: req_blocks", request.request_id));
    TENURE_RETURN_IF_ERROR(CheckText("pull: req_blocks", request.transfer_id));
    TENURE_RETURN_IF_ERROR(CheckLists("pull: req_blocks", request.blocks));
  }
  for (const size_t items : {pull.kv_caches_base_addr.size(), pull.block_lens.size(), pull.kv_block_lens.size(),
                             pull.registered_layer_indices.size(), pull.registered_group_indices.size(),
                             pull.registered_row_offsets.size()}) {
    TENURE_RETURN_IF_ERROR(CheckItems("pull: the layout", items));
  }
  TENURE_RETURN_IF_ERROR(CheckLists("pull: registered_shared_group_ids", pull.registered_shared_group_ids));
  TENURE_RETURN_IF_ERROR(CheckTexts("pull: registered_layer_names", pull.registered_layer_names));
  TENURE_RETURN_IF_ERROR(CheckTransport(pull.transport));
  TENURE_RETURN_IF_ERROR(CheckSeconds("pull: answer_within", pull.answer_within));
  return CheckLease("pull", pull.kv_lease_duration);
}

void WriteTransport(MapWriter& map, const TransportAddress& transport) {
  if (!transport.kind.empty()) map.Field(kFields[16]).Value(transport.kind);
  if (!transport.address.empty()) map.Field(kFields[17]).Bytes(transport.address);
  if (transport.memory.empty()) return;
  const auto each = [&](size_t field, auto write) {
    MsgpackWriter& writer = map.Field(kFields[field]);
    writer.Array(transport.memory.size());
    for (const MemoryKey& range : transport.memory) write(writer, range);
  };
  each(18, [](MsgpackWriter& writer, const MemoryKey& range) { writer.Unsigned(range.base); });
  each(19, [](MsgpackWriter& writer, const MemoryKey& range) { writer.Unsigned(range.size); });
  each(20, [](MsgpackWriter& writer, const MemoryKey& range) { writer.Bytes(range.key); });
}

template <typename T>
void WriteUnlessEmpty(MapWriter& map, size_t field, const std::vector<T>& items) {
  if (!items.empty()) map.Field(kFields[field]).Value(items);
}

}  // namespace

absl::StatusOr<std::string> EncodePull(const Pull& pull) {
  TENURE_RETURN_IF_ERROR(CheckPull(pull));
  std::string message;
  MapWriter map(message);
  map.Field(kFields[0]).Value(pull.remote_hostname);
  map.Field(kFields[1]).Value(pull.remote_port);
  map.Field(kFields[2]).Value(pull.remote_tp_size);
  map.Field(kFields[3]).Value(pull.remote_tp_rank);
  WriteRequests(map.Field(kFields[4]), pull.requests);
  map.Field(kFields[5]).Value(pull.kv_caches_base_addr);
  map.Field(kFields[6]).Value(pull.block_lens);
  map.Field(kFields[7]).Value(pull.kv_block_lens);
  WriteUnlessEmpty(map, 8, pull.registered_layer_names);
  WriteUnlessEmpty(map, 9, pull.registered_layer_indices);
  WriteUnlessEmpty(map, 10, pull.registered_group_indices);
  WriteUnlessEmpty(map, 11, pull.registered_shared_group_ids);
  WriteUnlessEmpty(map, 12, pull.registered_row_offsets);
  if (pull.remote_pp_size != 1) map.Field(kFields[13]).Value(pull.remote_pp_size);
  if (pull.kv_lease_duration) map.Field(kFields[14]).Value(*pull.kv_lease_duration);
  if (pull.remote_pp_rank) map.Field(kFields[15]).Value(*pull.remote_pp_rank);
  WriteTransport(map, pull.transport);
  if (pull.answer_within) map.Field(kFields[21]).Value(*pull.answer_within);
  map.Finish();
  return message;
}

absl::StatusOr<Pull> DecodePull(std::string_view message) {
  Pull pull;
  MemoryLists memory;
  MsgpackReader reader(message);
  reader.Fields(kFields, kRequired, [&](size_t field) { ReadField(reader, field, pull, memory); });
  TENURE_RETURN_IF_ERROR(reader.Finish("pull"));
  TENURE_RETURN_IF_ERROR(CheckLease("pull", pull.kv_lease_duration));
  TENURE_RETURN_IF_ERROR(CheckSeconds("pull: answer_within", pull.answer_within));
  TENURE_RETURN_IF_ERROR(JoinMemory(memory, pull.transport.memory));
  return pull;
}

}  // namespace tenure::pd
