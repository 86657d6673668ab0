// A hit: the longest boundary at which every group has what a load needs, and where each group's last chunk is keyed.
#pragma once

#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

struct Hit {
  Tokens length;  // 0: a miss; `tails` is empty then.
  // One a group: the boundary whose hash keys the chunk that ends the hit; at or after `length` (after only in fine
  // mode, when a longer chunk of the same group covers the hit). spec/store_connector.md §4 step 7.
  std::vector<Tokens> tails;

  friend bool operator==(const Hit&, const Hit&) = default;
};

// The (group, hash) pairs a load of `hit` reads, group by group, ascending; each stands for one object on every rank.
// Source: spec/store_connector.md §13 load_set.
std::vector<GroupHash> LoadSet(const CacheConfig& config, const Hit& hit);

}  // namespace tenure::kv
