// Which objects of a save order this rank puts, keyed, in the order of their puts, each with its block and what it
// hangs on. Pure: no pool, no clock.
//
// Ranks that hold the same bytes of a group (a stripe of f) share its puts: chunk i is the rank's whose
// (tp_rank + group) mod f is i mod f. Source: store_connector spec §6.2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/connector/key_batch.h"
#include "tenure/connector/save_plan.h"
#include "tenure/engine/block_io.h"
#include "tenure/engine/block_memory.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/cache_config.h"

namespace tenure::engine {

struct SaveItem {
  connector::SaveObject object;
  // The null block: there is nothing to put, but what follows hangs on it, so it has to be there (closed pools only).
  BlockObject block;
  // Of a whole chunk, its first token and the length of the prefix up to its end; a boundary put has none.
  std::optional<Tokens> begin;
};

struct SaveListOptions {
  std::optional<Tokens> retention;  // As kv::StoreQuery.
  std::vector<int32_t> stripes;     // f of each group, at least 1.
  int32_t tp_rank = 0;
  bool closed = false;  // The pool wants parents.
};

class SaveList {
 public:
  // All outlive it; `namespaces` has a namespace for each shard of `memory`.
  SaveList(const kv::CacheConfig& config, const BlockMemory& memory, const connector::GroupNamespaces& namespaces,
           SaveListOptions options);

  struct Query {
    const SaveOrder& order;
    std::span<const kv::BlockHash> hashes;  // Of the request, from the first on.
    Tokens start;                           // Saved by earlier orders.
    Tokens length;                          // Whole scheduler blocks, covered by `hashes`.
  };
  // InvalidArgument, naming it, for a block that the engine does not have and a boundary that is no hash's.
  absl::StatusOr<std::vector<SaveItem>> Chunks(const Query& query) const;
  absl::StatusOr<std::vector<SaveItem>> BoundaryPuts(const Query& query) const;
  // Of a closed pool: both in one order, groups as in connector::SaveOrderOfGroups.
  void Merge(std::vector<SaveItem>& chunks, std::vector<SaveItem> boundary_puts) const;

  std::span<const int32_t> ranks() const { return ranks_; }
  bool IsStriped(kv::GroupIndex group) const { return options_.stripes[static_cast<size_t>(group.value())] > 1; }

 private:
  bool IsMine(kv::GroupIndex group, int64_t chunk) const;
  absl::Status CheckBlock(const SaveOrder& order, kv::GroupIndex group, BlockId block) const;
  // One item a shard.
  void Add(const Query& query, SaveItem item, std::vector<SaveItem>& items) const;
  std::optional<connector::SaveObject::Parent> ParentOf(const Query& query, const SaveItem& item) const;
  kv::ObjectKey KeyOf(kv::GroupIndex group, int32_t shard, const kv::BlockHash& hash) const;

  const kv::CacheConfig& config_;
  const BlockMemory& memory_;
  const connector::GroupNamespaces& namespaces_;
  const SaveListOptions options_;
  std::vector<int32_t> ranks_;  // Shards of each group.
  std::vector<kv::GroupIndex> order_;
};

}  // namespace tenure::engine
