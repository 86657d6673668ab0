// The last vectors of the store_connector spec §14.8.
#include "tenure/kv/chunk_list.h"

#include <gtest/gtest.h>

namespace tenure::kv {
namespace {

ListedChunk Chunk(int64_t begin, int64_t end, int64_t hash) { return {Tokens(begin), Tokens(end), HashIndex(hash)}; }

ChunkListQuery Query(int64_t length) {
  return {.block_size = Tokens(16), .hash_block_size = Tokens(4), .length = Tokens(length)};
}

TEST(ListChunks, CutsTheLastChunkAtTheLength) {
  EXPECT_EQ(ListChunks(Query(44)), (std::vector<ListedChunk>{Chunk(0, 16, 3), Chunk(16, 32, 7), Chunk(32, 44, 10)}));
}

TEST(ListChunks, SkipsChunksThatBeginBeforeStart) {
  ChunkListQuery query = Query(44);
  query.start = Tokens(20);
  EXPECT_EQ(ListChunks(query), (std::vector<ListedChunk>{Chunk(32, 44, 10)}));
}

TEST(ListChunks, SharesChunksAmongRanks) {
  ChunkListQuery query = Query(64);
  query.stride = 2;
  query.residue = 1;
  EXPECT_EQ(ListChunks(query), (std::vector<ListedChunk>{Chunk(16, 32, 7), Chunk(48, 64, 15)}));
}

TEST(ListChunks, MaskCountsFromStart) {
  ChunkListQuery query = Query(64);
  query.start = Tokens(16);
  query.mask = ChunkMask::Of({false, true, true});
  EXPECT_EQ(ListChunks(query), (std::vector<ListedChunk>{Chunk(32, 48, 11), Chunk(48, 64, 15)}));
  query.mask = ChunkMask::Of({true});
  EXPECT_EQ(ListChunks(query), (std::vector<ListedChunk>{Chunk(16, 32, 7)}));
}

TEST(ChunkHashIndex, IsTheLastHashInside) {
  EXPECT_EQ(ChunkHashIndex(0, 4), HashIndex(3));
  EXPECT_EQ(ChunkHashIndex(1, 4), HashIndex(7));
  EXPECT_EQ(ChunkHashIndex(5, 1), HashIndex(5));
}

}  // namespace
}  // namespace tenure::kv
