#include "tenure/engine/load_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/kv/chunk_list.h"
#include "tenure/kv/masks.h"

namespace tenure::engine {

LoadOrder MakeRefusedOrder(const kv::CacheConfig& config, std::string request, Tokens local,
                           std::span<const std::vector<BlockId>> blocks) {
  // Nobody reads the key, but a plan has no chunk without one.
  const kv::BlockHash no_key = kv::BlockHash::FromTrusted(std::array<uint8_t, 16>{});
  LoadOrder order{.request = std::move(request), .local = local, .length = Tokens(), .chunks = {}, .refused = true};
  for (size_t g = 0; g < std::min(blocks.size(), config.groups().size()); ++g) {
    const auto first = static_cast<size_t>(local / config.groups()[g].block_size);
    for (size_t chunk = first; chunk < blocks[g].size(); ++chunk) {
      if (blocks[g][chunk] <= kNullBlock) continue;
      order.chunks.push_back({kv::GroupIndex(static_cast<int32_t>(g)), blocks[g][chunk], no_key});
    }
  }
  return order;
}

absl::StatusOr<LoadOrder> MakeLoadOrder(const kv::CacheConfig& config, const connector::HashSource& hashes,
                                        const LoadQuery& query) {
  if (query.blocks.size() != config.groups().size()) {
    return InvalidArgument("blocks has {} tables; the cache has {} groups: give one a group", query.blocks.size(),
                           config.groups().size());
  }
  LoadOrder order{.request = query.request, .local = query.local, .length = query.hit.length, .chunks = {}};
  std::vector<kv::HashIndex> indices;
  for (size_t g = 0; g < query.blocks.size(); ++g) {
    const kv::GroupIndex group(static_cast<int32_t>(g));
    const kv::ChunkRange range = kv::LoadRange(config, group, query.hit.length);
    const Tokens whole = RoundDown(query.local, config.scheduler_block_size());
    const int64_t first = std::max(range.first, CeilDiv(whole, config.groups()[g].block_size));
    if (first<range.end&& static_cast<size_t>(range.end)> query.blocks[g].size()) {
      return InvalidArgument("blocks[{}] has {} blocks; a load of {} tokens reads {}", g, query.blocks[g].size(),
                             query.hit.length.value(), range.end);
    }
    for (int64_t chunk = first; chunk < range.end; ++chunk) {
      const BlockId block = query.blocks[g][static_cast<size_t>(chunk)];
      if (block == kNullBlock) continue;
      const bool tail = chunk + 1 == range.end;
      indices.push_back(tail ? kv::HashIndex(query.hit.tails[g] / config.hash_block_size() - 1)
                             : kv::ChunkHashIndex(chunk, config.HashesPerChunk(group)));
      order.chunks.push_back({group, block, {}});
    }
  }
  std::vector<kv::BlockHash> read(indices.size());
  TENURE_RETURN_IF_ERROR(hashes.Read(indices, read));
  for (size_t i = 0; i < read.size(); ++i) order.chunks[i].hash = read[i];
  return order;
}

}  // namespace tenure::engine
