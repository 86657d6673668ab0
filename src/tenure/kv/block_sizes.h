// How vLLM derives the scheduler block, the hash unit and the hit alignment of a model. Pure functions.
//
// Source: store_connector spec §1.2; vectors in §14.3. A connector calls it once at start and hands the result to
// CacheConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

// One group of the model as the engine configures it, before decode context parallelism (dcp) scales it.
struct ModelGroup {
  GroupKind kind = GroupKind::kFull;
  Tokens block_size;
  bool dcp_sharded = true;  // Attention: true; states: false.
  bool prefix_cacheable = true;
  bool state_align = true;       // kState only: the "align" mode, the only one whose states a prefix can resume from.
  int64_t tokens_per_state = 1;  // kState only: above 1, states exist at these multiples only.
};

struct BlockSizeOptions {
  std::vector<ModelGroup> groups;                          // At least one.
  int64_t dcp_size = 1;                                    // 1 to 4,096.
  std::optional<Tokens> prefix_match_unit = std::nullopt;  // The hash unit that the user asks for.
  bool prefix_caching = true;                              // Of the engine itself; partial hits need it.
};

struct BlockSizes {
  Tokens scheduler_block_size;  // B
  Tokens hash_block_size;       // h
  Tokens hit_alignment;         // h when hits may end inside a block (CacheConfig::Options.fine), else B.

  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

// `group.block_size`, times dcp_size where the group is sharded over it.
Tokens EffectiveBlockSize(const ModelGroup& group, int64_t dcp_size);

// Refuses, naming the field: no group, sizes below 1 or above 2^40 (their least common multiple too), a
// prefix_match_unit that is not the block of a single group or does not divide every cacheable group's, an alignment
// that is no multiple of tokens_per_state.
absl::StatusOr<BlockSizes> ResolveBlockSizes(const BlockSizeOptions& options);

}  // namespace tenure::kv
