#include "tenure/pd/pull_layout.h"

#include <string_view>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

absl::Status CheckLength(std::string_view field, size_t length, size_t regions) {
  if (length == regions) return absl::OkStatus();
  return InvalidArgument("pull: {} has {} items for {} regions; send one a region", field, length, regions);
}

absl::Status CheckLengths(const Pull& pull) {
  const size_t regions = pull.kv_caches_base_addr.size();
  if (regions > kRegionsMax) return InvalidArgument("pull: {} regions; use at most {}", regions, kRegionsMax);
  TENURE_RETURN_IF_ERROR(CheckLength("block_lens", pull.block_lens.size(), regions));
  TENURE_RETURN_IF_ERROR(CheckLength("kv_block_lens", pull.kv_block_lens.size(), regions));
  TENURE_RETURN_IF_ERROR(CheckLength("registered_layer_names", pull.registered_layer_names.size(), regions));
  TENURE_RETURN_IF_ERROR(CheckLength("registered_layer_indices", pull.registered_layer_indices.size(), regions));
  TENURE_RETURN_IF_ERROR(CheckLength("registered_group_indices", pull.registered_group_indices.size(), regions));
  // Peers may leave out the rest.
  if (!pull.registered_shared_group_ids.empty()) {
    TENURE_RETURN_IF_ERROR(
        CheckLength("registered_shared_group_ids", pull.registered_shared_group_ids.size(), regions));
  }
  if (!pull.registered_row_offsets.empty()) {
    TENURE_RETURN_IF_ERROR(CheckLength("registered_row_offsets", pull.registered_row_offsets.size(), regions));
  }
  return absl::OkStatus();
}

}  // namespace

void WritePullLayout(const KvLayout& decode, Pull& pull) {
  pull.remote_tp_size = decode.rank.tp_size;
  pull.remote_tp_rank = decode.rank.tp_rank;
  pull.remote_pp_size = decode.rank.pp_size;
  pull.remote_pp_rank = decode.rank.pp_rank;
  pull.kv_caches_base_addr.clear();
  pull.block_lens.clear();
  pull.kv_block_lens.clear();
  pull.registered_layer_names.clear();
  pull.registered_layer_indices.clear();
  pull.registered_group_indices.clear();
  pull.registered_shared_group_ids.clear();
  pull.registered_row_offsets.clear();
  for (const KvRegion& region : decode.regions) {
    pull.kv_caches_base_addr.push_back(region.base_addr);
    pull.block_lens.push_back(region.block_bytes);
    pull.kv_block_lens.push_back(region.kv_bytes);
    pull.registered_layer_names.push_back(region.layer_name);
    pull.registered_layer_indices.push_back(region.layer_index);
    pull.registered_group_indices.push_back(region.group_index);
    // Stock compares the lists as they are, and its own always name the group.
    pull.registered_shared_group_ids.push_back(
        region.shared_group_ids.empty() ? std::vector<int64_t>{region.group_index} : region.shared_group_ids);
    pull.registered_row_offsets.push_back(region.row_offset);
  }
}

absl::StatusOr<KvLayout> ReadPullLayout(const Pull& pull, size_t num_groups) {
  KvLayout decode;
  decode.rank = {pull.remote_tp_size, pull.remote_tp_rank, pull.remote_pp_size, pull.remote_pp_rank.value_or(0)};
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(decode.rank));
  TENURE_RETURN_IF_ERROR(CheckLengths(pull));
  decode.regions.reserve(pull.kv_caches_base_addr.size());
  for (size_t i = 0; i < pull.kv_caches_base_addr.size(); ++i) {
    KvRegion& region = decode.regions.emplace_back();
    region.layer_name = pull.registered_layer_names[i];
    region.layer_index = pull.registered_layer_indices[i];
    region.group_index = pull.registered_group_indices[i];
    if (!pull.registered_shared_group_ids.empty()) region.shared_group_ids = pull.registered_shared_group_ids[i];
    region.base_addr = pull.kv_caches_base_addr[i];
    region.block_bytes = pull.block_lens[i];
    region.kv_bytes = pull.kv_block_lens[i];
    if (!pull.registered_row_offsets.empty()) region.row_offset = pull.registered_row_offsets[i];
    TENURE_RETURN_IF_ERROR(CheckKvRegion(region, num_groups));
  }
  return decode;
}

}  // namespace tenure::pd
