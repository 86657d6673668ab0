// The text of object keys and the namespaces (key prefixes) in which a group's objects lie, byte for byte as stock
// connectors write them.
//
//   key = [cache_prefix "@"] model store_namespace "@tp_rank:"T "@pcp"P "@dcp"D "@pp_rank:"S "@group:"G "@" hex(hash)
//
// Pure functions. Source: store_connector spec §3 and §4 step 3; vectors in §14.7 and §14.9.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

// The part of a key that all ranks and groups of a model share.
struct KeyNames {
  std::string cache_prefix;     // Empty: none. Tells tenants apart.
  std::string model;            // From ModelName.
  std::string store_namespace;  // Empty, or begins with '@' (store_layout.h).
};
// Refuses a NUL or a control character, an empty model and texts above 512 bytes, naming the field.
absl::Status CheckKeyNames(const KeyNames& names);

// The last component of a model id: "org/Llama-3/" is "Llama-3".
std::string ModelName(std::string_view model_id);

// Where an object comes from. `tp` is already divided by the group's replication factor, or is a shard id.
struct KeyRank {
  int64_t tp = 0;
  int64_t pcp = 0;  // Prefill context parallelism.
  int64_t dcp = 0;  // Decode context parallelism.
  int64_t pp = 0;

  friend bool operator==(const KeyRank&, const KeyRank&) = default;
};

// All of a key but the hash, with the last '@'.
std::string NamespacePrefix(const KeyNames& names, const KeyRank& rank, GroupIndex group);
std::string KeyText(std::string_view namespace_prefix, const BlockHash& hash);
// The same into memory of the caller, KeyTextSize characters.
void WriteKeyText(std::string_view namespace_prefix, const BlockHash& hash, char* text);
inline size_t KeyTextSize(std::string_view namespace_prefix, const BlockHash& hash) {
  return namespace_prefix.size() + 2 * hash.size();
}

// Mooncake's own "group id": one for all ranks and groups of a hash, so a lease on one of them is a lease on all.
std::string MooncakeGroupId(const KeyNames& names, const BlockHash& hash);

struct Parallelism {
  int64_t tp_size = 1;
  int64_t pcp_size = 1;
  int64_t dcp_size = 1;
  int64_t pp_size = 1;
};

// What of a group decides how many tensor-parallel ranks hold the same bytes.
struct GroupHeads {
  bool any_state = false;      // Some layer is recurrent: every rank has its own.
  bool all_latent = false;     // Every layer is MLA or sliding-window MLA: all ranks have the same.
  int64_t total_kv_heads = 1;  // Of the whole model; at least 1.
};
int64_t ReplicationFactor(const GroupHeads& heads, const Parallelism& parallelism);

// The rank under which a worker stores its part of a group with replication factor `replicas`.
KeyRank StoreRank(const KeyRank& worker, int64_t replicas);

// Where a lookup must find a chunk of a group: every rank that holds a part of it, in the order in which stock
// connectors ask.
std::vector<KeyRank> LookupRanks(const Parallelism& parallelism, int64_t replicas);
// The same for the TP-sharded store layout: the shards instead of the ranks.
std::vector<KeyRank> ShardLookupRanks(int64_t shards, int64_t pp_size);

}  // namespace tenure::kv
