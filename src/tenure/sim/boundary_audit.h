// What an unlimited store would hold: every boundary ever saved under a replay's save policy, and when each store under
// test last saved it. So each token that a real store lost has a cause and an age.
//
// Memory: below 100 bytes a distinct block (bytes() says how many now), whatever the number of requests. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"

namespace tenure::sim {

class BoundaryAudit {
 public:
  static constexpr size_t kStoresMax = 2;

  // `config` outlives this.
  explicit BoundaryAudit(const kv::CacheConfig& config) : config_(config) {}

  // The hit that the unlimited store gives a prompt whose whole blocks are `block_ids`.
  Tokens UnlimitedHit(std::span<const int64_t> block_ids, Tokens num_tokens) const;

  // The unlimited store keeps the group's object that `block_id` keys.
  void Keep(int64_t block_id, kv::GroupIndex group);
  // A store under test saved it at this time of the trace.
  void Saved(size_t store, int64_t block_id, kv::GroupIndex group, int64_t now_ms);
  // When any object keyed by the block was last saved in the store; nothing if never.
  std::optional<int64_t> LastSaved(size_t store, int64_t block_id) const;

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  Bytes bytes() const;

 private:
  static constexpr int64_t kNever = INT64_MIN;
  struct Block {
    uint64_t groups = 0;  // Bit g: the unlimited store holds group g's object.
    std::array<int64_t, kStoresMax> last_saved_ms{kNever, kNever};
  };
  class PromptKnowledge;

  const kv::CacheConfig& config_;
  absl::flat_hash_map<int64_t, Block> blocks_;
};

}  // namespace tenure::sim
