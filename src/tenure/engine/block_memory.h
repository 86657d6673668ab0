// Where the blocks of each store group lie in the engine's memory. Made once when the engine has registered its KV
// cache, then read from any thread.
//
// The object of (group, shard, block b) is the concatenation of [base + b * block_stride, size) over the shard's
// pieces. A rank-local layout has one shard a group and a piece for every registered region; a TP-sharded one has a
// shard for each range of heads that this rank owns (store_connector spec §3). Addresses may be a device's: nothing
// here reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/engine/step_plan.h"
#include "tenure/kv/group_spec.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

struct Piece {
  std::byte* base = nullptr;  // Of block 0.
  int64_t block_stride = 0;
  int64_t size = 0;  // Bytes of one block here.
};

// Memory that the engine keeps for as long as it saves and loads.
struct MemoryRange {
  std::byte* base = nullptr;
  int64_t size = 0;
};

class BlockMemory {
 public:
  static constexpr int64_t kBlocksMax = int64_t{1} << 31;
  static constexpr size_t kPiecesMax = size_t{1} << 20;  // Of one shard.

  using Shard = std::vector<Piece>;
  struct Options {
    std::vector<std::vector<Shard>> groups;
    std::vector<MemoryRange> regions;
    int64_t num_blocks = 0;  // The null block included.
  };
  // InvalidArgument names what is wrong: fewer than 2 blocks, a group without shards, a shard without pieces, a piece
  // without bytes, with a stride below its size, or with a block outside of the one region that holds its base.
  static absl::StatusOr<BlockMemory> Create(Options options);

  size_t groups() const { return shards_.size(); }
  int32_t shards(kv::GroupIndex group) const { return static_cast<int32_t>(ShardsOf(group).size()); }
  // Of one object.
  Bytes object_bytes(kv::GroupIndex group, int32_t shard) const { return Of(group, shard).bytes; }
  Bytes object_bytes_max() const;
  // A block that may be read and written: the engine has it, and it is not the null block.
  bool IsUsable(BlockId block) const { return block > kNullBlock && block < num_blocks_; }

  // Precondition: the group and shard are there and IsUsable(block).
  void AppendSegments(kv::GroupIndex group, int32_t shard, BlockId block, std::vector<store::Segment>& segments) const;

 private:
  struct SizedShard {
    Shard pieces;
    Bytes bytes;
  };
  BlockMemory(std::vector<std::vector<SizedShard>> shards, int64_t num_blocks)
      : shards_(std::move(shards)), num_blocks_(num_blocks) {}
  const std::vector<SizedShard>& ShardsOf(kv::GroupIndex group) const {
    return shards_[static_cast<size_t>(group.value())];
  }
  const SizedShard& Of(kv::GroupIndex group, int32_t shard) const {
    return ShardsOf(group)[static_cast<size_t>(shard)];
  }

  std::vector<std::vector<SizedShard>> shards_;
  int64_t num_blocks_;
};

}  // namespace tenure::engine
