#include "tenure/pd/region_match.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

struct NamedRegion {
  std::string_view layer_name;
  size_t occurrence;
  size_t index;  // In the layout.
};

bool Before(const NamedRegion& a, const NamedRegion& b) {
  return std::tie(a.layer_name, a.occurrence) < std::tie(b.layer_name, b.occurrence);
}

// Sorted by name, then occurrence.
std::vector<NamedRegion> SortByName(const std::vector<KvRegion>& regions) {
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return regions[a].layer_name < regions[b].layer_name; });
  std::vector<NamedRegion> named;
  named.reserve(order.size());
  for (const size_t index : order) {
    const std::string_view name = regions[index].layer_name;
    const bool again = !named.empty() && named.back().layer_name == name;
    named.push_back({name, again ? named.back().occurrence + 1 : 0, index});
  }
  return named;
}

std::optional<size_t> Find(const std::vector<NamedRegion>& named, std::string_view name, size_t occurrence) {
  const NamedRegion wanted = {name, occurrence, 0};
  const auto found = std::lower_bound(named.begin(), named.end(), wanted, Before);
  if (found == named.end() || Before(wanted, *found)) return std::nullopt;
  return found->index;
}

// The regions of `ours` that `theirs` has too, as (index of ours, index of theirs). The rest may be missing when stages
// hold different layers, but not a part of a layer.
absl::StatusOr<std::vector<RegionPair>> FindAll(std::string_view side, const std::vector<NamedRegion>& ours,
                                                const std::vector<NamedRegion>& theirs, bool stages_differ) {
  std::vector<RegionPair> found;
  found.reserve(ours.size());
  for (const NamedRegion& region : ours) {
    if (const auto index = Find(theirs, region.layer_name, region.occurrence)) {
      found.push_back({region.index, *index});
    } else if (!stages_differ || Find(theirs, region.layer_name, 0)) {
      return InvalidArgument("layer {}: region {} is registered on {} only; serve the same model on both sides",
                             LayerLabel(region.layer_name), region.occurrence, side);
    }
  }
  return found;
}

absl::Status CheckSame(const KvRegion& prefill, const KvRegion& decode) {
  if (prefill.layer_index != decode.layer_index) {
    return InvalidArgument("layer {}: index {} at P and {} at D; serve the same model on both sides",
                           LayerLabel(prefill.layer_name), prefill.layer_index, decode.layer_index);
  }
  if (prefill.group_index != decode.group_index) {
    return InvalidArgument("layer {}: KV group {} at P and {} at D; use the same KV cache settings on both sides",
                           LayerLabel(prefill.layer_name), prefill.group_index, decode.group_index);
  }
  if (prefill.group_index == kSharedGroup && !decode.shared_group_ids.empty() &&
      prefill.shared_group_ids != decode.shared_group_ids) {
    return InvalidArgument("layer {}: other groups share its memory at P than at D; use the same KV cache settings",
                           LayerLabel(prefill.layer_name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RegionPair>> MatchRegions(const KvLayout& prefill, const KvLayout& decode) {
  const bool stages_differ = prefill.rank.pp_size != decode.rank.pp_size;
  const std::vector<NamedRegion> prefill_names = SortByName(prefill.regions);
  const std::vector<NamedRegion> decode_names = SortByName(decode.regions);
  TENURE_ASSIGN_OR_RETURN(std::vector<RegionPair> pairs, FindAll("P", prefill_names, decode_names, stages_differ));
  TENURE_RETURN_IF_ERROR(FindAll("D", decode_names, prefill_names, stages_differ).status());
  for (const RegionPair& pair : pairs) {
    TENURE_RETURN_IF_ERROR(CheckSame(prefill.regions[pair.prefill], decode.regions[pair.decode]));
  }
  std::sort(pairs.begin(), pairs.end(), [](const RegionPair& a, const RegionPair& b) { return a.prefill < b.prefill; });
  return pairs;
}

absl::Status CheckRowsNameTheirLayers(const KvLayout& prefill, const KvLayout& decode) {
  if (prefill.rank.pp_size == decode.rank.pp_size) return absl::OkStatus();
  const auto hides = [](const KvRegion& region) { return region.hides_layers; };
  const auto fills_row = [](const KvRegion& region) {
    return region.row_offset == 0 && region.kv_bytes == region.block_bytes;
  };
  if (std::none_of(prefill.regions.begin(), prefill.regions.end(), hides) &&
      std::none_of(decode.regions.begin(), decode.regions.end(), fills_row)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "pipeline sizes {} at P and {} at D, but packed KV rows name only their first layer and cannot be matched across "
      "stages; use the same pipeline size",
      prefill.rank.pp_size, decode.rank.pp_size);
}

}  // namespace tenure::pd
