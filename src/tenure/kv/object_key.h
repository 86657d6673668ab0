// The key of one stored object: a namespace (an interned key prefix) and a block hash. A value.
#pragma once

#include <cstdint>

#include "tenure/base/units.h"
#include "tenure/kv/block_hash.h"

namespace tenure::kv {

// Given out by a pool for a key prefix; means something only to that pool.
using NamespaceId = Id<struct NamespaceIdTag, uint32_t>;

struct ObjectKey {
  NamespaceId name_space;
  BlockHash hash;
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

}  // namespace tenure::kv
