// Objects whose bytes tell their key, for tests that put and read through a pool. For tests only.
#pragma once

#include <cstdint>
#include <vector>

#include "tenure/store/pool.h"

namespace tenure::daemon {

// Equal numbers in equal namespaces are equal keys.
store::ObjectKey TestKey(store::NamespaceId name_space, uint64_t number);
// What is stored under a key: follows from its hash alone.
std::vector<std::byte> TestBytes(const store::ObjectKey& key, size_t size);

store::PutAnswer PutOne(store::Pool& pool, const store::ObjectKey& key, size_t size);
// Other bytes than those of TestBytes under this key end the process, here as in a client that is one.
store::KeyAnswer GetOne(store::Pool& pool, const store::ObjectKey& key, size_t size);
// One put of all; each names the one before as its parent when `chain`.
std::vector<store::PutAnswer> PutAll(store::Pool& pool, const std::vector<store::ObjectKey>& keys, size_t size,
                                     bool chain);

}  // namespace tenure::daemon
