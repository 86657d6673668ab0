// The order to load a hit: which object fills which block of a request. Source: store_connector spec §5.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/connector/hash_source.h"
#include "tenure/engine/step_plan.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/hit.h"

namespace tenure::engine {

struct LoadQuery {
  std::string request;
  Tokens local;  // Computed by the engine; chunks of whole scheduler blocks below it are not loaded.
  const kv::Hit& hit;
  std::span<const std::vector<BlockId>> blocks;  // One table a group, by chunk.
};
// The order of a load that cannot be made: its blocks past the local tokens fail, whatever the tables hold.
LoadOrder MakeRefusedOrder(const kv::CacheConfig& config, std::string request, Tokens local,
                           std::span<const std::vector<BlockId>> blocks);

// Null blocks are left out: the engine keeps nothing there. InvalidArgument when a table is missing or too short, or
// the hashes cannot be read.
absl::StatusOr<LoadOrder> MakeLoadOrder(const kv::CacheConfig& config, const connector::HashSource& hashes,
                                        const LoadQuery& query);

}  // namespace tenure::engine
