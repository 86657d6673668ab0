// A model of two layers and two heads with eight bytes a head and block: what tests of the P/D cores move about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tenure/pd/kv_layout.h"
#include "tenure/pd/pull.h"

namespace tenure::pd {

inline constexpr int64_t kTinyLayers = 2;
inline constexpr int64_t kTinyHeads = 2;
inline constexpr int64_t kTinyHeadBytes = 8;  // Of one layer in one block.

KvTraits TinyTraits();
// One region a layer, one behind the other from `base` on, each of `num_blocks` blocks of a rank's heads.
KvLayout TinyLayout(const WorkerRank& rank, uint64_t base, int64_t num_blocks);
// Of all regions.
int64_t TinyBytes(const WorkerRank& rank, int64_t num_blocks);
// What a decode worker with this layout says of itself; the lease in seconds.
Pull TinyPull(const KvLayout& decode, std::string host, std::optional<double> lease);

}  // namespace tenure::pd
