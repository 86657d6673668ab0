// The 64-bit table hash of an object key: its top bits choose the shard, its low 32 bits the place in the shard's
// table.
#pragma once

#include <cstdint>

#include "tenure/base/random.h"
#include "tenure/kv/object_key.h"

namespace tenure::store {

// A block hash is uniform, so its first eight bytes are enough; the mix keeps equal hashes of two namespaces apart and
// callers that choose their hashes from filling one shard by accident.
inline uint64_t HashOf(uint32_t name_space, uint64_t hash_prefix) {
  return Random::Mix(hash_prefix ^ ((uint64_t{name_space} + 1) * 0x9E3779B97F4A7C15u));
}
inline uint64_t HashOf(const kv::ObjectKey& key) { return HashOf(key.name_space.value(), key.hash.Prefix64()); }

}  // namespace tenure::store
