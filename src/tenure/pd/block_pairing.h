// Which block of P goes into which block of D, for one request and group (pd_protocol spec §5, "Block pairing").
//
// D's list is the end of P's: D may have the beginning from its own cache, and a sliding window may have dropped it.
// Placeholders (null ids) of state groups are left out on both sides first. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace tenure::pd {

// Blocks that step by one on both sides. Logical ids, as the scheduler counts.
struct BlockRun {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t count = 0;

  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

// Ids from 0 to below these.
struct BlockLimits {
  uint64_t from = UINT64_MAX;
  uint64_t to = UINT64_MAX;

  friend bool operator==(const BlockLimits&, const BlockLimits&) = default;
};

// Replaces `runs`, in the lists' order. InvalidArgument, and no runs: P has fewer blocks than D asks for; an id below 0
// or at its limit.
absl::Status PairBlocks(std::span<const int64_t> prefill, std::span<const int64_t> decode, bool is_state,
                        const BlockLimits& limits, std::vector<BlockRun>& runs);

}  // namespace tenure::pd
