// Which chunks of each group are worth storing, can be looked up, and are read by a load. Pure functions.
//
// Source: spec/store_connector.md §1.2 to §1.4; vectors in §14.1 to §14.4 are the tests. One function decides what is
// reachable for both store and lookup, so a writer never keeps less than a reader asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/chunk_mask.h"

namespace tenure::kv {

// The prefix lengths from which a prompt of `num_tokens` (at least 1) is resumed when it is asked again; ascending.
std::vector<Tokens> ReplayBoundaries(Tokens num_tokens, Tokens scheduler_block_size, bool eagle);
// Tokens past a hit that an eagle group must prove.
Tokens EagleProofMargin(Tokens block_size, Tokens hash_block_size, bool fine);
// Where a recurrent state of the prompt is saved; 0 for nowhere.
Tokens StateCheckpoint(Tokens num_tokens, Tokens hash_block_size, bool eagle);

// Chunks [start, end) of a group that a later hit can read. `retention` absent keeps every aligned boundary's tail, 0
// only `boundaries`, n > 0 every n-th token's. `alignment` absent means unknown.
struct ReachableQuery {
  int64_t start = 0;
  int64_t end = 0;
  std::optional<Tokens> alignment;
  std::optional<Tokens> retention;
  std::span<const Tokens> boundaries;
};
ChunkMask ReachableMask(const GroupSpec& spec, const ReachableQuery& query);

// True when a lookup may ask for this chunk: the closed form of LookupMask, without memory.
bool LookupMaskHas(const CacheConfig& config, GroupIndex group, int64_t chunk);
// One mask a group for the chunks of `length` tokens.
std::vector<ChunkMask> LookupMask(const CacheConfig& config, Tokens length);

struct StoreQuery {
  Tokens length;                            // A multiple of the hit alignment.
  Tokens start;                             // Tokens already stored; the masks begin after them.
  std::optional<Tokens> num_prompt_tokens;  // Absent: no replay boundary.
  std::optional<Tokens> retention;          // Absent dense, 0 replay boundaries only, else a multiple of B.
};
// One mask a group for the suffix after `start`. State groups are all 0: their states are stored at boundaries one by
// one.
std::vector<ChunkMask> StoreMask(const CacheConfig& config, const StoreQuery& query);

// The chunks [first, end) of `group` that a load of `hit` tokens reads (always one run); `hit` is an aligned hit.
struct ChunkRange {
  int64_t first = 0;
  int64_t end = 0;
};
ChunkRange LoadRange(const CacheConfig& config, GroupIndex group, Tokens hit);
// LoadRange as explicit masks; chunks before the run are 0.
std::vector<ChunkMask> LoadMask(const CacheConfig& config, Tokens hit);

}  // namespace tenure::kv
