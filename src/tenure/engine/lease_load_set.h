// Leases once more what a load of a hit reads: the renewal of a lookup's lease.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/connector/hash_source.h"
#include "tenure/connector/key_batch.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/hit.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

// One lease of all keys of the hit's load set, on every rank; nothing when one of them is gone. On a closed pool the
// last chunk of a full-attention chain stands for the chain. Any failure of the pool or the hashes, thrown ones too, is
// a status. `keys` is scratch, made with the namespaces that the lookup used.
absl::StatusOr<std::optional<store::Lease>> LeaseLoadSet(const kv::CacheConfig& config, store::Pool& pool,
                                                         connector::KeyBatch& keys, const connector::HashSource& hashes,
                                                         const kv::Hit& hit, absl::Duration ttl);

}  // namespace tenure::engine
