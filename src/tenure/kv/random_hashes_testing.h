// Block hashes of a made-up prompt, the same in every run. For tests and benchmarks only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tenure/base/random.h"
#include "tenure/kv/block_hash.h"

namespace tenure::kv {

// `count` different hashes of 32 bytes.
inline std::vector<BlockHash> RandomHashes(int64_t count) {
  Random random(7);
  std::vector<BlockHash> hashes;
  for (int64_t i = 0; i < count; ++i) {
    std::array<uint8_t, BlockHash::kSizeMax> bytes{};
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    hashes.push_back(BlockHash::FromTrusted(bytes));
  }
  return hashes;
}

}  // namespace tenure::kv
