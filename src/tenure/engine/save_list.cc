#include "tenure/engine/save_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/kv/chunk_list.h"
#include "tenure/kv/masks.h"

namespace tenure::engine {

using connector::SaveObject;
using kv::GroupIndex;
using kv::GroupKind;
using kv::HashIndex;

namespace {

size_t At(GroupIndex group) { return static_cast<size_t>(group.value()); }

}  // namespace

SaveList::SaveList(const kv::CacheConfig& config, const BlockMemory& memory,
                   const connector::GroupNamespaces& namespaces, SaveListOptions options)
    : config_(config),
      memory_(memory),
      namespaces_(namespaces),
      options_(std::move(options)),
      order_(connector::SaveOrderOfGroups(config)) {
  for (const auto& shards : namespaces) ranks_.push_back(static_cast<int32_t>(shards.size()));
}

absl::StatusOr<std::vector<SaveItem>> SaveList::Chunks(const Query& query) const {
  const std::optional<Tokens> prefill_end =
      query.order.prefill_end >= Tokens(1) ? std::optional(query.order.prefill_end) : std::nullopt;
  const std::vector<kv::ChunkMask> masks = kv::StoreMask(config_, {.length = query.length,
                                                                   .start = query.start,
                                                                   .num_prompt_tokens = prefill_end,
                                                                   .retention = options_.retention});
  std::vector<SaveItem> items;
  for (const GroupIndex group : order_) {
    const kv::GroupSpec& spec = config_.groups()[At(group)];
    static const std::vector<BlockId> kNoBlocks;
    const std::vector<BlockId>& blocks =
        At(group) < query.order.blocks.size() ? query.order.blocks[At(group)] : kNoBlocks;
    const kv::ChunkListQuery chunks{.block_size = spec.block_size,
                                    .hash_block_size = config_.hash_block_size(),
                                    .length = query.length,
                                    .start = query.start,
                                    .stride = options_.stripes[At(group)],
                                    .residue = (options_.tp_rank + group.value()) % options_.stripes[At(group)],
                                    .mask = masks[At(group)]};
    for (const kv::ListedChunk& chunk : kv::ListChunks(chunks)) {
      const auto index = static_cast<size_t>(chunk.begin / spec.block_size);
      const BlockId block = index < blocks.size() ? blocks[index] : kNullBlock;
      const bool is_link = options_.closed && spec.kind == GroupKind::kFull;
      if (block == kNullBlock && !is_link) continue;
      TENURE_RETURN_IF_ERROR(CheckBlock(query.order, group, block));
      SaveItem item;
      item.object = {group, 0, chunk.hash, std::nullopt};
      item.block.block = block;
      item.begin = chunk.begin;
      Add(query, item, items);
    }
  }
  return items;
}

absl::StatusOr<std::vector<SaveItem>> SaveList::BoundaryPuts(const Query& query) const {
  std::vector<SaveItem> items;
  for (const BoundaryPut& put : query.order.boundary_puts) {
    if (put.group.value() < 0 || At(put.group) >= config_.groups().size()) {
      return InvalidArgument("a boundary put of request {} is for group {} of {}", query.order.request,
                             put.group.value(), config_.groups().size());
    }
    if (put.tokens < Tokens(0) || put.tokens % config_.hash_block_size() != Tokens(0)) {
      return InvalidArgument("a boundary put of request {} is at {} tokens, no multiple of the hash block size {}",
                             query.order.request, put.tokens.value(), config_.hash_block_size().value());
    }
    TENURE_RETURN_IF_ERROR(CheckBlock(query.order, put.group, put.block));
    const int64_t hashes = put.tokens / config_.hash_block_size();
    if (put.block == kNullBlock || hashes == 0 || hashes > static_cast<int64_t>(query.hashes.size())) continue;
    if (!IsMine(put.group, CeilDiv(put.tokens, config_.groups()[At(put.group)].block_size) - 1)) continue;
    SaveItem item;
    item.object = {put.group, 0, HashIndex(hashes - 1), std::nullopt};
    item.block.block = put.block;
    Add(query, item, items);
  }
  return items;
}

void SaveList::Merge(std::vector<SaveItem>& chunks, std::vector<SaveItem> boundary_puts) const {
  chunks.insert(chunks.end(), std::make_move_iterator(boundary_puts.begin()),
                std::make_move_iterator(boundary_puts.end()));
  const auto place = [this](const SaveItem& item) { return std::ranges::find(order_, item.object.group); };
  std::ranges::stable_sort(chunks, {}, place);
}

bool SaveList::IsMine(GroupIndex group, int64_t chunk) const {
  const int64_t stripe = options_.stripes[At(group)];
  return chunk % stripe == (options_.tp_rank + group.value()) % stripe;
}

absl::Status SaveList::CheckBlock(const SaveOrder& order, GroupIndex group, BlockId block) const {
  if (block == kNullBlock || memory_.IsUsable(block)) return absl::OkStatus();
  return InvalidArgument("a save of request {} names block {} of group {}, which this engine does not have",
                         order.request, block, group.value());
}

void SaveList::Add(const Query& query, SaveItem item, std::vector<SaveItem>& items) const {
  const SaveObject& object = item.object;
  const kv::BlockHash& hash = query.hashes[static_cast<size_t>(object.hash.value())];
  for (int32_t shard = 0; shard < ranks_[At(object.group)]; ++shard) {
    item.object.rank = shard;
    item.object.parent = options_.closed ? ParentOf(query, item) : std::nullopt;
    item.block.key = KeyOf(object.group, shard, hash);
    item.block.group = object.group;
    item.block.shard = shard;
    item.block.parent.reset();
    if (item.object.parent) {
      const SaveObject::Parent& parent = *item.object.parent;
      item.block.parent = KeyOf(parent.group, parent.rank, query.hashes[static_cast<size_t>(parent.hash.value())]);
    }
    items.push_back(item);
  }
}

// The rule of connector::ParentOf, where the chunk around the object may not be whole yet: then the object hangs on the
// partial chunk that is put at the same boundary, or on the last whole one before it.
std::optional<SaveObject::Parent> SaveList::ParentOf(const Query& query, const SaveItem& item) const {
  const SaveObject& object = item.object;
  std::optional<SaveObject::Parent> parent =
      connector::ParentOf(config_, ranks_, object.group, object.rank, object.hash);
  if (!parent || parent->group == object.group || config_.groups()[At(object.group)].kind == GroupKind::kFull) {
    return parent;
  }
  const Tokens unit = config_.hash_block_size();
  const Tokens end = unit * (object.hash.value() + 1);
  if (unit * (parent->hash.value() + 1) <= std::max(query.start, query.length)) return parent;
  const auto is_partner = [&](const BoundaryPut& put) {
    return put.group == parent->group && put.tokens == end && put.block != kNullBlock;
  };
  if (std::ranges::any_of(query.order.boundary_puts, is_partner)) {
    parent->hash = object.hash;
    return parent;
  }
  const int64_t whole =
      std::min(end, std::max(query.start, query.length)) / config_.groups()[At(parent->group)].block_size;
  if (whole == 0) return std::nullopt;
  parent->hash = kv::ChunkHashIndex(whole - 1, config_.HashesPerChunk(parent->group));
  return parent;
}

kv::ObjectKey SaveList::KeyOf(GroupIndex group, int32_t shard, const kv::BlockHash& hash) const {
  return {namespaces_[At(group)][static_cast<size_t>(shard)], hash};
}

}  // namespace tenure::engine
