// Which objects of a prompt are worth a put, in which order, what each hangs on, and what to stop at when the pool
// refuses one. Pure: no pool, no clock. One rule for replay, which plans a whole prompt, and for an engine's saver,
// which saves a prompt in pieces as it grows.
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

// An object's group as an eviction policy sees it.
store::ObjectKind ObjectKindOf(kv::GroupKind kind);

// Every group once, in the order in which their objects are put.
std::vector<kv::GroupIndex> SaveOrderOfGroups(const kv::CacheConfig& config);

// The group that the chunks of windows, states and chunked attention hang on; none without full attention.
std::optional<kv::GroupIndex> FirstFullGroup(const kv::CacheConfig& config);

// What an object hangs on. `hash` may lie inside a chunk (a partial tail): full attention then hangs on the whole chunk
// before it, others on the whole chunk around it, whether or not that is stored. `ranks`: namespaces of each group.
std::optional<SaveObject::Parent> ParentOf(const kv::CacheConfig& config, std::span<const int32_t> ranks,
                                           kv::GroupIndex group, int32_t rank, kv::HashIndex hash);

struct SaveQuery {
  Tokens start;                    // Already in the pool: the hit; 0 or a multiple of the scheduler block size.
  Tokens num_tokens;               // The prompt; at least 1.
  Tokens state_every;              // 0, or a multiple of the scheduler block size.
  std::span<const int32_t> ranks;  // Namespaces of each group; at least 1.
};

// InvalidArgument names the field. A `start` at or past the last whole scheduler block gives an empty plan.
absl::StatusOr<std::vector<SaveObject>> PlanSave(const kv::CacheConfig& config, const SaveQuery& query);

// What was not kept so far, and so what is not worth a put any more: a chain (one group on one rank) ends at its first
// object that was not kept, and what hangs on that or on what would follow it is skipped, since nobody could reach it.
// What nobody tried counts as kept: other ranks may put it, or it was there before. A value; copies are independent.
class SaveChains {
 public:
  explicit SaveChains(std::span<const int32_t> ranks);

  bool IsReachable(const SaveObject& object) const;
  // What the pool answered, in the order of each chain; one that is not kept may come early.
  void Record(const SaveObject& object, bool kept);
  bool stopped(kv::GroupIndex group, int32_t rank) const { return ChainOf(group, rank).lost.has_value(); }
  // Above every hash of the chain that was recorded as kept; 0 when none was.
  kv::HashIndex kept_end(kv::GroupIndex group, int32_t rank) const { return ChainOf(group, rank).kept_end; }

 private:
  struct Chain {
    std::optional<kv::HashIndex> lost;  // The first that was not kept.
    kv::HashIndex kept_end;
  };
  size_t Index(kv::GroupIndex group, int32_t rank) const {
    return first_chain_[static_cast<size_t>(group.value())] + static_cast<size_t>(rank);
  }
  const Chain& ChainOf(kv::GroupIndex group, int32_t rank) const { return chains_[Index(group, rank)]; }

  std::vector<size_t> first_chain_;  // Of each group, into chains_.
  std::vector<Chain> chains_;
};

// Walks a plan while the pool answers.
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
  const kv::CacheConfig& config_;
  Tokens start_;
  std::vector<int32_t> ranks_;
  std::span<const SaveObject> plan_;
  SaveChains chains_;
  size_t position_ = 0;  // Of the object that Next gives next.
  int64_t skipped_ = 0;
};

}  // namespace tenure::connector
