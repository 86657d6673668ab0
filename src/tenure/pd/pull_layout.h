// The part of a pull that says where D's KV lies, from D's layout and back (pd_protocol spec §3, fields 3, 4, 6 to 14).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/pd/pull.h"

namespace tenure::pd {

// On D: fills every layout field of `pull`, D's ranks and sizes among them.
void WritePullLayout(const KvLayout& decode, Pull& pull);

// On P: every field checked, since a peer wrote them. InvalidArgument: lists of different lengths, more than
// kRegionsMax regions, ranks outside of their sizes, a payload above its stride, a group outside of [0, num_groups)
// that is not kSharedGroup. The parts of a region that a pull does not carry keep their defaults.
absl::StatusOr<KvLayout> ReadPullLayout(const Pull& pull, size_t num_groups);

}  // namespace tenure::pd
