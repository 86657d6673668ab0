// The checked KV-cache configuration of one model: groups, hash unit, alignment, and the lookup units that merge equal
// groups.
//
// Made once, then read from any thread. Source of the rules: spec/store_connector.md §1.2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

// Groups with equal specs are looked up as one unit: it has a chunk only if every group of it has.
struct LookupUnit {
  GroupSpec spec;                  // `eagle` is set if it is for any member.
  std::vector<GroupIndex> groups;  // Ascending.
  int64_t hashes_per_chunk = 1;    // spec.block_size / hash block size.
  bool fine = false;               // Hits may end inside a chunk: fine mode and the kind supports it.
};

class CacheConfig {
 public:
  static constexpr int kGroupsMax = 64;
  static constexpr int64_t kTokensMax = int64_t{1} << 40;  // No block, window or attention chunk is longer.

  struct Options {
    Tokens hash_block_size;       // h: tokens a block hash covers.
    Tokens scheduler_block_size;  // B: the least common multiple of the groups' block sizes.
    bool fine = false;            // Partial hash hits: hits align to h instead of B.
    bool use_eagle = false;       // Makes every group eagle when none is flagged.
    std::vector<GroupSpec> groups;
  };

  // Refuses, naming the field: no group or too many; sizes below 1; a block size that h does not divide or that does
  // not divide B; h that does not divide B; a window below 1; chunked with a block size other than B, with eagle or in
  // fine mode.
  static absl::StatusOr<CacheConfig> Create(Options options);

  Tokens hash_block_size() const { return options_.hash_block_size; }
  Tokens scheduler_block_size() const { return options_.scheduler_block_size; }
  bool fine() const { return options_.fine; }
  // A: h in fine mode, else B. Every hit is a multiple of it.
  Tokens hit_alignment() const { return fine() ? options_.hash_block_size : options_.scheduler_block_size; }
  // With `eagle` as it applies after use_eagle.
  std::span<const GroupSpec> groups() const { return options_.groups; }
  bool any_eagle() const;
  // Full-attention units first, each part in order of its first group.
  std::span<const LookupUnit> units() const { return units_; }
  // The unit that `group` belongs to. Its spec has the group's sizes and the eagle flag that applies to the group's
  // chunks.
  const LookupUnit& UnitOf(GroupIndex group) const;
  int64_t HashesPerChunk(GroupIndex group) const { return UnitOf(group).hashes_per_chunk; }

 private:
  explicit CacheConfig(Options options);

  Options options_;
  std::vector<LookupUnit> units_;
  std::vector<size_t> unit_of_group_;
};

}  // namespace tenure::kv
