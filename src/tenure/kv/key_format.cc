#include "tenure/kv/key_format.h"

#include <algorithm>

#include "tenure/base/status.h"
#include "tenure/kv/hex.h"

namespace tenure::kv {
namespace {

constexpr size_t kNameBytesMax = 512;

absl::Status CheckName(std::string_view field, std::string_view text) {
  if (text.size() > kNameBytesMax) {
    return InvalidArgument("{} has {} bytes; use at most {}", field, text.size(), kNameBytesMax);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f) {
      return InvalidArgument("{} has the control character {} at byte {}; use printable text", field,
                             static_cast<int>(text[i]), i);
    }
  }
  return absl::OkStatus();
}

std::string SharedPart(const KeyNames& names) {
  const std::string_view separator = names.cache_prefix.empty() ? "" : "@";
  return fmt::format("{}{}{}{}", names.cache_prefix, separator, names.model, names.store_namespace);
}

}  // namespace

absl::Status CheckKeyNames(const KeyNames& names) {
  TENURE_RETURN_IF_ERROR(CheckName("cache_prefix", names.cache_prefix));
  TENURE_RETURN_IF_ERROR(CheckName("model", names.model));
  TENURE_RETURN_IF_ERROR(CheckName("namespace", names.store_namespace));
  if (names.model.empty()) return InvalidArgument("model is empty; give the name of the model");
  return absl::OkStatus();
}

std::string ModelName(std::string_view model_id) {
  while (!model_id.empty() && model_id.back() == '/') model_id.remove_suffix(1);
  return std::string(model_id.substr(model_id.rfind('/') + 1));
}

std::string NamespacePrefix(const KeyNames& names, const KeyRank& rank, GroupIndex group) {
  return fmt::format("{}@tp_rank:{}@pcp{}@dcp{}@pp_rank:{}@group:{}@", SharedPart(names), rank.tp, rank.pcp, rank.dcp,
                     rank.pp, group.value());
}

std::string KeyText(std::string_view namespace_prefix, const BlockHash& hash) {
  std::string text(KeyTextSize(namespace_prefix, hash), '\0');
  WriteKeyText(namespace_prefix, hash, text.data());
  return text;
}

void WriteKeyText(std::string_view namespace_prefix, const BlockHash& hash, char* text) {
  WriteHex(hash.bytes(), std::copy(namespace_prefix.begin(), namespace_prefix.end(), text));
}

std::string MooncakeGroupId(const KeyNames& names, const BlockHash& hash) {
  return fmt::format("vllm-mooncake-store:{}@{}", SharedPart(names), hash.ToHex());
}

int64_t ReplicationFactor(const GroupHeads& heads, const Parallelism& parallelism) {
  if (parallelism.dcp_size > 1 || heads.any_state) return 1;
  if (heads.all_latent) return parallelism.tp_size;
  return std::max<int64_t>(1, parallelism.tp_size / heads.total_kv_heads);
}

KeyRank StoreRank(const KeyRank& worker, int64_t replicas) {
  return {worker.tp / replicas, worker.pcp, worker.dcp, worker.pp};
}

std::vector<KeyRank> LookupRanks(const Parallelism& parallelism, int64_t replicas) {
  const bool dcp = parallelism.dcp_size > 1;
  const int64_t tp_ranks = dcp ? parallelism.tp_size : parallelism.tp_size / replicas;
  std::vector<KeyRank> ranks;
  for (int64_t pcp = 0; pcp < parallelism.pcp_size; ++pcp) {
    for (int64_t tp = 0; tp < tp_ranks; ++tp) {
      for (int64_t pp = 0; pp < parallelism.pp_size; ++pp) {
        ranks.push_back({tp, pcp, dcp ? tp % parallelism.dcp_size : 0, pp});
      }
    }
  }
  return ranks;
}

std::vector<KeyRank> ShardLookupRanks(int64_t shards, int64_t pp_size) {
  return LookupRanks({.tp_size = shards, .pp_size = pp_size}, 1);
}

}  // namespace tenure::kv
