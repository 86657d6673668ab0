// A slow, literal model of the coordinator's hit search and lookup, against which the real rule is tested.
//
// It is written from the rules of the store_connector spec §1.3, §1.5, §1.6 and §4 with sets and strings only, shares
// no code with masks, hit rule or search, and keeps every quirk. For tests; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"
#include "tenure/kv/hit.h"

namespace tenure::kv::testing {

// What a pool holds of one prompt: `groups[g]` are the indices of the hashes under which group g has an object.
struct PresenceSet {
  int64_t num_hashes = 0;
  std::vector<std::set<int64_t>> groups;

  friend bool operator==(const PresenceSet&, const PresenceSet&) = default;
};

// The hit of one unit: tokens, and one '1' for a block that is there, '0' for one that is passed over.
struct UnitHit {
  int64_t length = 0;
  std::string blocks;

  friend bool operator==(const UnitHit&, const UnitHit&) = default;
};

struct UnitQuery {
  int64_t hash_block_size = 1;
  int64_t num_hashes = 0;
  int64_t length_max = 0;
  int64_t alignment = 1;
  bool drop_eagle = false;
};
// §1.5 for one spec (its `eagle` is not read).
UnitHit OracleUnitHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query);

struct CoordinatorHit {
  int64_t length = 0;
  std::vector<std::string> blocks;  // One a group: the load masks; "" each for a miss.

  friend bool operator==(const CoordinatorHit&, const CoordinatorHit&) = default;
};
// §1.6: the coordinator's search over everything in `presence`.
CoordinatorHit OracleHit(const CacheConfig& config, const PresenceSet& presence, int64_t length_max,
                         bool apply_eagle = true);

// §1.4 load masks: the search over a pool that has everything, without eagle.
std::vector<std::string> OracleLoadMask(const CacheConfig& config, int64_t length);

// §4 steps 1 and 2: what a lookup asks for, in its order. Each stands for one key on every rank of its group.
std::vector<GroupHash> OracleCandidates(const CacheConfig& config, int64_t num_hashes, int64_t num_tokens);

// §4 steps 5 to 7 over what the candidates find in `presence`. A hit whose load set lacks a key (in vLLM a failed
// assertion: only an eagle window of one token) is a miss; a chunked group that reads nothing has its tail at the hit.
Hit OracleLookup(const CacheConfig& config, const PresenceSet& presence, int64_t num_tokens);

// True when `length`, a multiple of the alignment above 0, has its whole load set in `presence` and, for eagle units,
// the proof: full attention covers min(alignment, block) tokens past it, a window has the chunk after it.
bool BruteForceBoundary(const CacheConfig& config, const PresenceSet& presence, int64_t length);

// The keys of the load set that are not in `presence`; empty for a sound hit.
std::vector<GroupHash> MissingLoads(const CacheConfig& config, const PresenceSet& presence, const Hit& hit);

// The part of `presence` that a closed pool could hold: full-attention chunks have all their predecessors, others have
// the chunk of the first full group that covers their last token.
PresenceSet ClosedPart(const CacheConfig& config, const PresenceSet& presence);

}  // namespace tenure::kv::testing
