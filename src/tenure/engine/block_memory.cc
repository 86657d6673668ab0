#include "tenure/engine/block_memory.h"

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

uintptr_t AddressOf(const std::byte* address) { return reinterpret_cast<uintptr_t>(address); }

bool Holds(const MemoryRange& region, uintptr_t first, uint64_t bytes) {
  const uintptr_t base = AddressOf(region.base);
  const auto size = static_cast<uint64_t>(region.size);
  return first >= base && first - base <= size && bytes <= size - (first - base);
}

absl::Status CheckRegions(const std::vector<MemoryRange>& regions) {
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].base == nullptr || regions[i].size < 1) {
      return InvalidArgument("regions[{}] has base {:#x} and {} bytes; give memory of at least 1 byte", i,
                             AddressOf(regions[i].base), regions[i].size);
    }
    if (AddressOf(regions[i].base) > UINTPTR_MAX - static_cast<uint64_t>(regions[i].size)) {
      return InvalidArgument("regions[{}] has {} bytes from {:#x}, past the end of memory; give its real size", i,
                             regions[i].size, AddressOf(regions[i].base));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPiece(const std::string& what, const Piece& piece, const BlockMemory::Options& options) {
  if (piece.size < 1) return InvalidArgument("{} has {} bytes a block; give at least 1", what, piece.size);
  if (piece.block_stride < piece.size) {
    return InvalidArgument("{} has blocks of {} bytes every {}: they overlap; give a larger stride", what, piece.size,
                           piece.block_stride);
  }
  int64_t bytes = 0;  // From the first byte of block 0 to the last one of the last block.
  if (__builtin_mul_overflow(options.num_blocks - 1, piece.block_stride, &bytes) ||
      __builtin_add_overflow(bytes, piece.size, &bytes)) {
    return InvalidArgument("{} has {} blocks every {} bytes, more than 2^63 bytes; give a smaller stride", what,
                           options.num_blocks, piece.block_stride);
  }
  const auto holds = [&](const MemoryRange& region) {
    return Holds(region, AddressOf(piece.base), static_cast<uint64_t>(bytes));
  };
  if (std::ranges::none_of(options.regions, holds)) {
    return InvalidArgument("{} has {} bytes from {:#x} on, which no registered region holds; register that memory",
                           what, bytes, AddressOf(piece.base));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BlockMemory> BlockMemory::Create(Options options) {
  if (options.num_blocks < 2 || options.num_blocks > kBlocksMax) {
    return InvalidArgument("num_blocks is {}; give 2 to {}, the null block included", options.num_blocks, kBlocksMax);
  }
  TENURE_RETURN_IF_ERROR(CheckRegions(options.regions));
  std::vector<std::vector<SizedShard>> groups;
  for (size_t g = 0; g < options.groups.size(); ++g) {
    auto& shards = groups.emplace_back();
    if (options.groups[g].empty()) return InvalidArgument("pieces[{}] is empty; give each group at least 1 shard", g);
    for (size_t s = 0; s < options.groups[g].size(); ++s) {
      Shard& shard = options.groups[g][s];
      if (shard.empty() || shard.size() > kPiecesMax) {
        return InvalidArgument("pieces[{}][{}] has {} pieces; give 1 to {}", g, s, shard.size(), kPiecesMax);
      }
      int64_t bytes = 0;
      for (size_t p = 0; p < shard.size(); ++p) {
        TENURE_RETURN_IF_ERROR(CheckPiece(fmt::format("pieces[{}][{}][{}]", g, s, p), shard[p], options));
        if (__builtin_add_overflow(bytes, shard[p].size, &bytes)) {
          return InvalidArgument("pieces[{}][{}] has 2^63 bytes or more a block; give fewer", g, s);
        }
      }
      shards.push_back({std::move(shard), Bytes(bytes)});
    }
  }
  return BlockMemory(std::move(groups), options.num_blocks);
}

Bytes BlockMemory::object_bytes_max() const {
  Bytes most;
  for (const auto& shards : shards_) {
    for (const SizedShard& shard : shards) most = std::max(most, shard.bytes);
  }
  return most;
}

void BlockMemory::AppendSegments(kv::GroupIndex group, int32_t shard, BlockId block,
                                 std::vector<store::Segment>& segments) const {
  for (const Piece& piece : Of(group, shard).pieces) {
    segments.push_back({.data = piece.base + block * piece.block_stride, .size = static_cast<size_t>(piece.size)});
  }
}

}  // namespace tenure::engine
