// Which objects of a prompt are worth a put, in which order, and what to stop at when the pool refuses one. Pure: no
// pool, no clock.
//
// Full attention ascending, then windows and chunked, then states, so that an object never comes before the one it
// hangs on (design: "a save must not eat itself"). Full attention keeps every whole chunk; windows keep the tails and
// states the snapshots from which the prompt can be resumed: at its own last boundary, and at each multiple of
// `state_every` (store_connector spec §1.3, §1.4). Windows and states come from one rule, so both are there at the same
// boundaries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"
#include "tenure/store/pool.h"

namespace tenure::connector {

struct SaveObject {
  kv::GroupIndex group;
  int32_t rank = 0;    // Index into the group's namespaces.
  kv::HashIndex hash;  // Keys the object; its last token is (hash + 1) * hash block size - 1.
  // The object without which this one is useless, of the same kind of name. Full attention: the preceding chunk.
  // Others: the chunk of the first full-attention group that holds the last token, in the namespace of the same rank.
  // None: the first chunk, or no such group.
  struct Parent {
    kv::GroupIndex group;
    int32_t rank = 0;
    kv::HashIndex hash;
    friend bool operator==(const Parent&, const Parent&) = default;
  };
  std::optional<Parent> parent;
  friend bool operator==(const SaveObject&, const SaveObject&) = default;
};

struct SaveQuery {
  Tokens start;                    // Already in the pool: the hit; 0 or a multiple of the scheduler block size.
  Tokens num_tokens;               // The prompt; at least 1.
  Tokens state_every;              // 0, or a multiple of the scheduler block size.
  std::span<const int32_t> ranks;  // Namespaces of each group; at least 1.
};

// InvalidArgument names the field. A `start` at or past the last whole scheduler block gives an empty plan.
absl::StatusOr<std::vector<SaveObject>> PlanSave(const kv::CacheConfig& config, const SaveQuery& query);

// Walks a plan while the pool answers. A chain (one group on one rank) ends at its first object that was not kept; what
// hangs on a chunk that was not kept is skipped, since nobody could reach it.
class SaveProgress {
 public:
  // All outlive this; `query` is the one that made the plan.
  SaveProgress(const kv::CacheConfig& config, const SaveQuery& query, std::span<const SaveObject> plan);

  // The next object to put, or null at the end. Valid as long as the plan.
  const SaveObject* Next();
  // What the pool answered for the object that Next gave last.
  void Record(store::PutAnswer answer);

  // Every full-attention chain is in the pool up to here; without full attention, the start.
  Tokens offset() const;
  int64_t skipped() const { return skipped_; }

 private:
  struct Chain {
    bool stopped = false;
    kv::HashIndex kept_end;  // Full attention: hashes below this are in the pool.
  };
  Chain& ChainOf(kv::GroupIndex group, int32_t rank);
  bool IsReachable(const SaveObject& object);

  const kv::CacheConfig& config_;
  Tokens start_;
  std::span<const SaveObject> plan_;
  std::vector<size_t> first_chain_;  // Of each group, into chains_.
  std::vector<Chain> chains_;
  size_t position_ = 0;  // Of the object that Next gives next.
  int64_t skipped_ = 0;
};

}  // namespace tenure::connector
