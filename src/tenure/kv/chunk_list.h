// The chunks of one group that a save or a load handles, with the hash that keys each. Pure functions.
//
// Source: store_connector spec §2 (chunk hashes) and the vectors at the end of §14.8.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/chunk_mask.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

// The hash that keys whole chunk `chunk`: the last one inside it.
constexpr HashIndex ChunkHashIndex(int64_t chunk, int64_t hashes_per_chunk) {
  return HashIndex((chunk + 1) * hashes_per_chunk - 1);
}

struct ListedChunk {
  Tokens begin;
  Tokens end;      // begin + block size, or the length where it cuts the last chunk.
  HashIndex hash;  // Covers the prompt up to `end`.

  friend bool operator==(const ListedChunk&, const ListedChunk&) = default;
};

struct ChunkListQuery {
  Tokens block_size;  // A multiple of hash_block_size; both at least 1.
  Tokens hash_block_size = Tokens();
  Tokens length;            // Tokens to cover; a multiple of hash_block_size.
  Tokens start = Tokens();  // Chunks that begin before it are left out.
  // Ranks with the same bytes share the work: only chunks whose index is `residue` modulo `stride`.
  int64_t stride = 1;
  int64_t residue = 0;
  ChunkMask mask =
      ChunkMask::All();  // Counted from the first chunk at or after `start`; chunks past its end are left out.
};
std::vector<ListedChunk> ListChunks(const ChunkListQuery& query);

}  // namespace tenure::kv
