#include "tenure/pd/region_join.h"

#include <algorithm>
#include <tuple>

namespace tenure::pd {
namespace {

uint64_t RowStart(const KvRegion& region) { return region.base_addr - static_cast<uint64_t>(region.row_offset); }

// The regions of one side that lie in packed rows, by row, group and place.
class RowIndex {
 public:
  explicit RowIndex(const std::vector<KvRegion>& regions) {
    for (const KvRegion& region : regions) {
      if (region.row_offset != kNoRow) places_.push_back({RowStart(region), region.group_index, region.row_offset});
    }
    std::sort(places_.begin(), places_.end());
  }

  // How many regions of the row begin in [begin, end) and may hold blocks of `groups`.
  int64_t Count(uint64_t row_start, const std::vector<int64_t>& groups, int64_t begin, int64_t end) const {
    int64_t count = CountOf(row_start, kSharedGroup, begin, end);
    for (const int64_t group : groups) count += CountOf(row_start, group, begin, end);
    return count;
  }

 private:
  struct Place {
    uint64_t row_start;
    int64_t group;
    int64_t offset;
    bool operator<(const Place& other) const {
      return std::tie(row_start, group, offset) < std::tie(other.row_start, other.group, other.offset);
    }
  };

  int64_t CountOf(uint64_t row_start, int64_t group, int64_t begin, int64_t end) const {
    const auto first = std::lower_bound(places_.begin(), places_.end(), Place{row_start, group, begin});
    return std::lower_bound(first, places_.end(), Place{row_start, group, end}) - first;
  }

  std::vector<Place> places_;
};

// Neighbours in the list that will be one region. Offsets are from the first region of the run.
struct Run {
  const KvRegion* prefill_first;
  const KvRegion* decode_first;
  const KvRegion* prefill_last;
  const KvRegion* decode_last;
  int64_t num_regions;
  int64_t num_blocks;

  int64_t size() const {
    return static_cast<int64_t>(prefill_last->base_addr - prefill_first->base_addr) + prefill_last->kv_bytes;
  }
};

class Joiner {
 public:
  Joiner(const KvLayout& prefill, const KvLayout& decode)
      : prefill_rows_(prefill.regions), decode_rows_(decode.regions) {}

  bool Extends(const Run& run, const KvRegion& prefill, const KvRegion& decode) const {
    const std::vector<int64_t> groups = GroupsOf(*run.prefill_first);
    const bool same_groups = prefill.group_index == run.prefill_first->group_index &&
                             prefill.shared_group_ids == run.prefill_first->shared_group_ids;
    return same_groups && SameDistance(run, prefill, decode) &&
           Follows(prefill_rows_, groups, *run.prefill_first, *run.prefill_last, prefill) &&
           Follows(decode_rows_, groups, *run.decode_first, *run.decode_last, decode);
  }

  CopyRegion Finish(const Run& run) const {
    const KvRegion& prefill = *run.prefill_first;
    const KvRegion& decode = *run.decode_first;
    CopyRegion region = WholeRegion(prefill, decode);
    region.size = FillsRow(run, region.groups) ? region.from_stride : static_cast<uint64_t>(run.size());
    region.from_blocks = static_cast<uint64_t>(run.num_blocks);
    return region;
  }

 private:
  // The gap before the new region is as wide on both sides.
  static bool SameDistance(const Run& run, const KvRegion& prefill, const KvRegion& decode) {
    return prefill.base_addr - run.prefill_last->base_addr == decode.base_addr - run.decode_last->base_addr;
  }

  // In the same row, behind the last one, with nothing of these groups between. The run's own last region begins at the
  // start of that range, the new one at its end.
  static bool Follows(const RowIndex& rows, const std::vector<int64_t>& groups, const KvRegion& first,
                      const KvRegion& last, const KvRegion& next) {
    return first.row_offset != kNoRow && next.row_offset != kNoRow && first.block_bytes == next.block_bytes &&
           RowStart(first) == RowStart(next) && last.row_offset + last.kv_bytes <= next.row_offset &&
           rows.Count(RowStart(first), groups, last.row_offset, next.row_offset) == 1;
  }

  // Nothing else of these groups is in the row, on either side, and all of it lies at the same places.
  bool FillsRow(const Run& run, const std::vector<int64_t>& groups) const {
    const KvRegion& prefill = *run.prefill_first;
    const KvRegion& decode = *run.decode_first;
    return prefill.row_offset == 0 && decode.row_offset == 0 && prefill.block_bytes == decode.block_bytes &&
           prefill_rows_.Count(RowStart(prefill), groups, 0, INT64_MAX) == run.num_regions &&
           decode_rows_.Count(RowStart(decode), groups, 0, INT64_MAX) == run.num_regions;
  }

  RowIndex prefill_rows_;
  RowIndex decode_rows_;
};

}  // namespace

std::vector<CopyRegion> JoinRegions(const KvLayout& prefill, const KvLayout& decode,
                                    const std::vector<RegionPair>& pairs) {
  const Joiner joiner(prefill, decode);
  std::vector<RegionPair> ordered = pairs;
  // Layers of several groups may have been registered in turns.
  std::sort(ordered.begin(), ordered.end(), [&](const RegionPair& a, const RegionPair& b) {
    const KvRegion& left = prefill.regions[a.prefill];
    const KvRegion& right = prefill.regions[b.prefill];
    return std::tie(left.group_index, left.shared_group_ids, left.base_addr, a.prefill) <
           std::tie(right.group_index, right.shared_group_ids, right.base_addr, b.prefill);
  });
  std::vector<Run> runs;
  for (const RegionPair& pair : ordered) {
    const KvRegion& from = prefill.regions[pair.prefill];
    const KvRegion& to = decode.regions[pair.decode];
    if (!runs.empty() && joiner.Extends(runs.back(), from, to)) {
      Run& run = runs.back();
      run.prefill_last = &from;
      run.decode_last = &to;
      run.num_regions += 1;
      run.num_blocks = std::min(run.num_blocks, from.num_blocks);
    } else {
      runs.push_back({&from, &to, &from, &to, 1, from.num_blocks});
    }
  }
  std::vector<CopyRegion> regions;
  regions.reserve(runs.size());
  for (const Run& run : runs) regions.push_back(joiner.Finish(run));
  return regions;
}

}  // namespace tenure::pd
