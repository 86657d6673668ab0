#include "tenure/pd/write_plan.h"

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/pd/head_cut.h"
#include "tenure/pd/pull_layout.h"
#include "tenure/pd/region_join.h"
#include "tenure/pd/region_match.h"

namespace tenure::pd {
namespace {

// D's layout, known to pair with P's.
absl::StatusOr<KvLayout> ReadPeer(const KvLayout& prefill, const KvTraits& traits, const Pull& pull) {
  TENURE_ASSIGN_OR_RETURN(KvLayout decode, ReadPullLayout(pull, traits.groups.size()));
  const bool stages_equal = decode.rank.pp_size == prefill.rank.pp_size;
  if (stages_equal && !pull.remote_pp_rank) decode.rank.pp_rank = prefill.rank.pp_rank;
  TENURE_RETURN_IF_ERROR(CheckPaired(prefill.rank, decode.rank));
  TENURE_RETURN_IF_ERROR(CheckRowsNameTheirLayers(prefill, decode));
  return decode;
}

bool IsState(const KvRegion& region, const KvTraits& traits) {
  const std::vector<int64_t> groups = GroupsOf(region);
  return std::any_of(groups.begin(), groups.end(), [&](int64_t group) { return traits.groups[group].is_state; });
}

absl::StatusOr<std::vector<CopyRegion>> CutRegions(const KvLayout& prefill, const KvLayout& decode,
                                                   const KvTraits& traits, const std::vector<RegionPair>& pairs,
                                                   const HeadCut& heads) {
  std::vector<CopyRegion> regions;
  regions.reserve(pairs.size());
  for (const RegionPair& pair : pairs) {
    const KvRegion& from = prefill.regions[pair.prefill];
    const KvRegion& to = decode.regions[pair.decode];
    TENURE_ASSIGN_OR_RETURN(const ByteCut cut, heads.Cut(from, to, IsState(from, traits)));
    CopyRegion region = WholeRegion(from, to);
    region.from += cut.from;
    region.to += cut.to;
    region.size = cut.size;
    regions.push_back(std::move(region));
  }
  return regions;
}

bool WantsNothing(const std::vector<std::vector<int64_t>>& decode_blocks) {
  return std::all_of(decode_blocks.begin(), decode_blocks.end(), [](const auto& ids) { return ids.empty(); });
}

}  // namespace

absl::StatusOr<WritePlan> WritePlan::Create(const KvLayout& prefill, const KvTraits& traits, const Pull& pull) {
  TENURE_RETURN_IF_ERROR(CheckKvLayout(prefill, traits));
  TENURE_ASSIGN_OR_RETURN(const KvLayout decode, ReadPeer(prefill, traits, pull));
  WritePlan plan;
  TENURE_ASSIGN_OR_RETURN(plan.consumers_needed_,
                          ConsumersNeeded(prefill.rank, decode.rank.tp_size, decode.rank.pp_size));
  TENURE_ASSIGN_OR_RETURN(const std::vector<RegionPair> pairs, MatchRegions(prefill, decode));
  TENURE_ASSIGN_OR_RETURN(const HeadCut heads, HeadCut::Create(prefill.rank, decode.rank, traits));
  TENURE_ASSIGN_OR_RETURN(plan.regions_, CutRegions(prefill, decode, traits, pairs, heads));
  if (heads.whole_blocks()) plan.regions_ = JoinRegions(prefill, decode, pairs);
  if (!heads.sends()) plan.regions_.clear();
  for (const KvGroup& group : traits.groups) {
    plan.groups_.push_back({group.is_state, static_cast<uint64_t>(group.physical_blocks), {}});
  }
  for (const CopyRegion& region : plan.regions_) plan.Bound(region);
  return plan;
}

void WritePlan::Bound(const CopyRegion& region) {
  for (const int64_t index : region.groups) {
    Group& group = groups_[index];
    group.limits.from = std::min(group.limits.from, region.from_blocks / group.physical_blocks);
    group.limits.to = std::min(group.limits.to, region.to_blocks / group.physical_blocks);
  }
}

absl::Status WritePlan::Append(const HandoffBlocks& prefill_blocks,
                               const std::vector<std::vector<int64_t>>& decode_blocks,
                               std::vector<WritePiece>& pieces) const {
  if (WantsNothing(decode_blocks)) return absl::OkStatus();
  if (prefill_blocks.size() != groups_.size() || decode_blocks.size() != groups_.size()) {
    return InvalidArgument("KV group count mismatch: {} of P, {} asked for, {} in the model; serve the same model",
                           prefill_blocks.size(), decode_blocks.size(), groups_.size());
  }
  std::vector<std::vector<BlockRun>> runs(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    TENURE_RETURN_IF_ERROR(
        PairBlocks(prefill_blocks[i], decode_blocks[i], groups_[i].is_state, groups_[i].limits, runs[i]));
  }
  const size_t needed = pieces.size() + CountPieces(runs);
  if (needed > kWritePiecesMax) {
    return ResourceExhausted("{} pieces in one write; pull fewer requests at once, {} pieces are the most", needed,
                             kWritePiecesMax);
  }
  if (needed > pieces.capacity()) pieces.reserve(std::max(needed, 2 * pieces.capacity()));
  for (const CopyRegion& region : regions_) AppendRegion(region, runs, pieces);
  return absl::OkStatus();
}

size_t WritePlan::CountPieces(const std::vector<std::vector<BlockRun>>& runs) const {
  std::vector<size_t> blocks(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const BlockRun& run : runs[i]) blocks[i] += run.count * groups_[i].physical_blocks;
  }
  size_t count = 0;
  for (const CopyRegion& region : regions_) {
    for (const int64_t group : region.groups) {
      count += region.joins_blocks() ? runs[group].size() : blocks[group];
    }
  }
  return count;
}

void WritePlan::AppendRegion(const CopyRegion& region, const std::vector<std::vector<BlockRun>>& runs,
                             std::vector<WritePiece>& pieces) const {
  for (const int64_t group : region.groups) {
    const uint64_t physical = groups_[group].physical_blocks;
    for (const BlockRun& run : runs[group]) {
      uint64_t from = region.from + run.from * physical * region.from_stride;
      uint64_t to = region.to + run.to * physical * region.to_stride;
      if (region.joins_blocks()) {
        pieces.push_back({from, to, run.count * physical * region.size});
        continue;
      }
      for (uint64_t i = 0; i < run.count * physical; ++i) {
        pieces.push_back({from, to, region.size});
        from += region.from_stride;
        to += region.to_stride;
      }
    }
  }
}

}  // namespace tenure::pd
