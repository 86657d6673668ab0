// A worker's KV layout from what Python says of it. With the interpreter's lock held.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "tenure/pd/kv_layout.h"

namespace tenure::python {

using RankTuple = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // TP size and rank, PP size and rank.
using GroupTuples = std::vector<std::pair<bool, int64_t>>;         // Holds states; kernel blocks of a block.

inline pd::KvLayout LayoutFrom(const std::vector<pd::KvRegion>& regions, const RankTuple& rank) {
  const auto& [tp_size, tp_rank, pp_size, pp_rank] = rank;
  return {{tp_size, tp_rank, pp_size, pp_rank}, regions};
}

inline pd::KvTraits TraitsFrom(int64_t total_kv_heads, bool is_mla, const GroupTuples& groups) {
  pd::KvTraits traits{total_kv_heads, is_mla, {}};
  for (const auto& [is_state, physical_blocks] : groups) traits.groups.push_back({is_state, physical_blocks});
  return traits;
}

}  // namespace tenure::python
