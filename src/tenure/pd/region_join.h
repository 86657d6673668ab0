// Joins regions that lie side by side in the rows of a packed storage, on both sides alike, so that a block is one
// piece instead of one a layer (pd_protocol spec §5, "Region coalescing").
//
// Padding between two payloads is copied with them: the row belongs to the block's group, and no region lies there. A
// row whose regions are all joined, at the same places on both sides, is copied whole, so that neighbouring blocks are
// one piece too. Only for blocks that are copied whole. Pure functions.
#pragma once

#include <vector>

#include "tenure/pd/copy_region.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/pd/region_match.h"

namespace tenure::pd {

// `pairs` have equal payloads; both layouts are checked. Each of the answer is one or more of them, by group and P's
// address.
std::vector<CopyRegion> JoinRegions(const KvLayout& prefill, const KvLayout& decode,
                                    const std::vector<RegionPair>& pairs);

}  // namespace tenure::pd
