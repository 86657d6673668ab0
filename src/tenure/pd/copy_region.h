// One region of a write plan: where the bytes of block 0 go from and to, and how far the next block is on each side.
#pragma once

#include <cstdint>
#include <vector>

#include "tenure/pd/kv_layout.h"

namespace tenure::pd {

struct CopyRegion {
  std::vector<int64_t> groups;  // Whose blocks it holds; one, unless groups share the memory.
  uint64_t from = 0;            // Addresses of block 0's first byte to copy.
  uint64_t to = 0;
  uint64_t from_stride = 0;  // Bytes from a block to the next.
  uint64_t to_stride = 0;
  uint64_t size = 0;         // Bytes of a block; at most either stride.
  uint64_t from_blocks = 0;  // P's kernel blocks.
  uint64_t to_blocks = 0;    // As many as the address space has room for: D's number is not in a pull.

  // Neighbouring blocks on both sides are one run of bytes.
  bool joins_blocks() const { return size == from_stride && size == to_stride; }

  friend bool operator==(const CopyRegion&, const CopyRegion&) = default;
};

// P's payload of each block as it is; the two match and have passed CheckKvLayout and CheckKvRegion.
CopyRegion WholeRegion(const KvRegion& prefill, const KvRegion& decode);

}  // namespace tenure::pd
