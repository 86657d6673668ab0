#include "tenure/pd/kv_layout.h"

#include <algorithm>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

constexpr size_t kLabelBytesMax = 80;
constexpr int64_t kPhysicalBlocksMax = 65'536;
constexpr int64_t kKvHeadsMax = 65'536;

absl::Status CheckTraits(const KvTraits& traits) {
  if (traits.total_kv_heads < 1 || traits.total_kv_heads > kKvHeadsMax) {
    return InvalidArgument("total_kv_heads is {}; use 1 to {}", traits.total_kv_heads, kKvHeadsMax);
  }
  if (traits.groups.empty() || traits.groups.size() > kKvGroupsMax) {
    return InvalidArgument("{} KV cache groups; use 1 to {}", traits.groups.size(), kKvGroupsMax);
  }
  for (const KvGroup& group : traits.groups) {
    if (group.physical_blocks < 1 || group.physical_blocks > kPhysicalBlocksMax) {
      return InvalidArgument("physical_blocks is {}; use 1 to {}", group.physical_blocks, kPhysicalBlocksMax);
    }
    if (group.is_state && group.physical_blocks != 1) {
      return InvalidArgument("physical_blocks of a state group is {}; use 1", group.physical_blocks);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSharedGroups(const KvRegion& region, const KvTraits& traits) {
  const std::vector<int64_t>& shared = region.shared_group_ids;
  std::vector<int64_t> sorted = shared;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (shared.size() < 2 || twice || sorted.front() < 0 || sorted.back() >= static_cast<int64_t>(traits.groups.size())) {
    return InvalidArgument("layer {}: shared_group_ids needs two or more of the {} groups, each once",
                           LayerLabel(region.layer_name), traits.groups.size());
  }
  for (const int64_t group : shared) {
    if (traits.groups[group].physical_blocks != traits.groups[shared[0]].physical_blocks) {
      return InvalidArgument("layer {}: groups {} and {} share memory but differ in physical_blocks; make them equal",
                             LayerLabel(region.layer_name), shared[0], group);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int64_t> GroupsOf(const KvRegion& region) {
  return region.group_index == kSharedGroup ? region.shared_group_ids : std::vector<int64_t>{region.group_index};
}

std::string LayerLabel(std::string_view layer_name) {
  std::string label(layer_name.substr(0, kLabelBytesMax));
  for (char& c : label) c = c >= ' ' && c <= '~' ? c : '?';
  return label;
}

absl::Status CheckKvRegion(const KvRegion& region, size_t num_groups) {
  if (region.kv_bytes < 1 || region.block_bytes < region.kv_bytes) {
    return InvalidArgument("layer {}: kv_block_len {} with block_len {}; use 1 to block_len bytes",
                           LayerLabel(region.layer_name), region.kv_bytes, region.block_bytes);
  }
  const int64_t groups = static_cast<int64_t>(num_groups);
  if (region.group_index != kSharedGroup && (region.group_index < 0 || region.group_index >= groups)) {
    return InvalidArgument("layer {}: group {} of {} groups; use 0 to {}, or {} for a shared region",
                           LayerLabel(region.layer_name), region.group_index, groups, groups - 1, kSharedGroup);
  }
  const std::vector<int64_t>& shared = region.shared_group_ids;
  if (region.group_index != kSharedGroup && !shared.empty() && shared != std::vector<int64_t>{region.group_index}) {
    return InvalidArgument("layer {}: shared_group_ids is not the region's group {} alone; leave it out",
                           LayerLabel(region.layer_name), region.group_index);
  }
  if (region.row_offset == kNoRow) return absl::OkStatus();
  if (region.row_offset < 0 || region.row_offset > region.block_bytes - region.kv_bytes ||
      static_cast<uint64_t>(region.row_offset) > region.base_addr) {
    return InvalidArgument(
        "layer {}: row_offset {} does not fit a payload of {} into rows of {} bytes; use {} for none",
        LayerLabel(region.layer_name), region.row_offset, region.kv_bytes, region.block_bytes, kNoRow);
  }
  return absl::OkStatus();
}

absl::Status CheckKvLayout(const KvLayout& layout, const KvTraits& traits) {
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(layout.rank));
  TENURE_RETURN_IF_ERROR(CheckTraits(traits));
  if (layout.regions.empty() || layout.regions.size() > kRegionsMax) {
    return InvalidArgument("{} KV regions; register 1 to {}", layout.regions.size(), kRegionsMax);
  }
  for (const KvRegion& region : layout.regions) {
    TENURE_RETURN_IF_ERROR(CheckKvRegion(region, traits.groups.size()));
    if (region.group_index == kSharedGroup) TENURE_RETURN_IF_ERROR(CheckSharedGroups(region, traits));
    const uint64_t room = (UINT64_MAX - region.base_addr) / static_cast<uint64_t>(region.block_bytes);
    if (region.num_blocks < 1 || static_cast<uint64_t>(region.num_blocks) > room) {
      return InvalidArgument("layer {}: {} blocks of {} bytes at address {}; use 1 to {}",
                             LayerLabel(region.layer_name), region.num_blocks, region.block_bytes, region.base_addr,
                             room);
    }
  }
  return absl::OkStatus();
}

}  // namespace tenure::pd
