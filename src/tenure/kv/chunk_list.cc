#include "tenure/kv/chunk_list.h"

#include <algorithm>

#include "tenure/base/check.h"

namespace tenure::kv {

std::vector<ListedChunk> ListChunks(const ChunkListQuery& query) {
  TENURE_CHECK(query.hash_block_size >= Tokens(1) && query.block_size % query.hash_block_size == Tokens());
  TENURE_CHECK(query.length % query.hash_block_size == Tokens() && query.start >= Tokens());
  TENURE_CHECK(query.stride >= 1 && query.residue >= 0 && query.residue < query.stride);
  std::vector<ListedChunk> chunks;
  const int64_t first = CeilDiv(query.start, query.block_size);
  for (int64_t i = first; query.block_size * i < query.length; ++i) {
    if (!query.mask.is_all() && i - first >= query.mask.size()) break;
    if (i % query.stride != query.residue || !query.mask[i - first]) continue;
    const Tokens end = std::min(query.block_size * (i + 1), query.length);
    chunks.push_back({query.block_size * i, end, HashIndex(end / query.hash_block_size - 1)});
  }
  return chunks;
}

}  // namespace tenure::kv
