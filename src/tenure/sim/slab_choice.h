// Which slab size a simulated pool gets: objects of a model come in few sizes, and a slab holds one size.
#pragma once

#include <span>

#include "tenure/base/units.h"

namespace tenure::sim {

// A multiple of the largest of `sizes` (each 1 byte to 2 GiB) that wastes little for every size, near 64 MiB where
// objects are smaller and small against `capacity`, so that the pool can move slabs between sizes. Never above 2 GiB or
// `capacity`, which holds at least one object.
Bytes ChooseSlab(std::span<const Bytes> sizes, Bytes capacity);

}  // namespace tenure::sim
