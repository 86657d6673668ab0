#include "tenure/engine/lease_load_set.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "tenure/base/status.h"
#include "tenure/kv/presence.h"

namespace tenure::engine {
namespace {

std::vector<kv::GroupHash> PairsToLease(const kv::CacheConfig& config, bool closed, const kv::Hit& hit) {
  std::vector<kv::GroupHash> pairs = kv::LoadSet(config, hit);
  if (!closed) return pairs;
  std::vector<kv::GroupHash> ends;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const bool full = config.UnitOf(pairs[i].group).spec.kind == kv::GroupKind::kFull;
    const bool last = i + 1 == pairs.size() || pairs[i + 1].group != pairs[i].group;
    if (!full || last) ends.push_back(pairs[i]);
  }
  return ends;
}

absl::StatusOr<std::optional<store::Lease>> Acquire(std::span<const kv::GroupHash> pairs, store::Pool& pool,
                                                    connector::KeyBatch& keys, const connector::HashSource& hashes,
                                                    absl::Duration ttl) {
  TENURE_RETURN_IF_ERROR(keys.Build(pairs, hashes));
  std::vector<kv::Presence> presence(pairs.size());
  TENURE_ASSIGN_OR_RETURN(store::Lease lease, keys.AcquireLease(pool, ttl, presence));
  if (std::find(presence.begin(), presence.end(), kv::Presence::kAbsent) != presence.end()) {
    return std::optional<store::Lease>();
  }
  return std::optional<store::Lease>(std::move(lease));
}

}  // namespace

absl::StatusOr<std::optional<store::Lease>> LeaseLoadSet(const kv::CacheConfig& config, store::Pool& pool,
                                                         connector::KeyBatch& keys, const connector::HashSource& hashes,
                                                         const kv::Hit& hit, absl::Duration ttl) {
  // Pools and hash sources of other languages may throw.
  try {
    return Acquire(PairsToLease(config, pool.traits().closed, hit), pool, keys, hashes, ttl);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace tenure::engine
