// Which region of P is which of D (pd_protocol spec §5, "Alignment"; §9 edge 30).
//
// By layer name and occurrence: the second region of a name matches the second of that name. Position would not do,
// since pipeline stages hold different layers. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/pd/kv_layout.h"

namespace tenure::pd {

// Indices into the two layouts' regions.
struct RegionPair {
  size_t prefill;
  size_t decode;

  friend bool operator==(const RegionPair&, const RegionPair&) = default;
};

// In the order of P's regions. InvalidArgument: a layer of P that D lacks, unless the pipeline sizes differ and D has
// nothing of it; a region of D that P lacks, unless they differ and P has nothing of the layer: its KV would stay
// stale; layer indices or groups that differ.
absl::StatusOr<std::vector<RegionPair>> MatchRegions(const KvLayout& prefill, const KvLayout& decode);

// A packed row that has only its first layer's name cannot be matched when stages hold other layers. InvalidArgument
// when the pipeline sizes differ and either side has such a row; D's is recognised by a payload that fills its row, so
// a row of a single layer is refused too.
absl::Status CheckRowsNameTheirLayers(const KvLayout& prefill, const KvLayout& decode);

}  // namespace tenure::pd
