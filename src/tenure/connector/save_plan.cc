#include "tenure/connector/save_plan.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/kv/chunk_list.h"
#include "tenure/kv/masks.h"

namespace tenure::connector {
namespace {

using kv::GroupIndex;
using kv::GroupKind;
using kv::HashIndex;

absl::Status Validate(const kv::CacheConfig& config, const SaveQuery& query) {
  const Tokens block = config.scheduler_block_size();
  if (query.num_tokens < Tokens(1)) return InvalidArgument("num_tokens {}: give at least 1", query.num_tokens.value());
  if (query.start < Tokens(0) || query.start % block != Tokens(0)) {
    return InvalidArgument("start {}: give a multiple of the scheduler block size {}", query.start.value(),
                           block.value());
  }
  if (query.state_every < Tokens(0) || query.state_every % block != Tokens(0)) {
    return InvalidArgument("state_every {}: give 0 or a multiple of the scheduler block size {}",
                           query.state_every.value(), block.value());
  }
  if (query.ranks.size() != config.groups().size() ||
      std::ranges::any_of(query.ranks, [](int32_t n) { return n < 1; })) {
    return InvalidArgument("ranks: give one number of at least 1 for each of the {} groups", config.groups().size());
  }
  return absl::OkStatus();
}

// The chunks of a group to save, counted from `first`.
struct GroupChunks {
  int64_t first = 0;
  int64_t end = 0;
  kv::ChunkMask mask = kv::ChunkMask::All();
};

GroupChunks ChunksOf(const kv::CacheConfig& config, const kv::GroupSpec& spec, const SaveQuery& query,
                     std::span<const Tokens> boundaries) {
  const Tokens length = RoundDown(query.num_tokens, config.scheduler_block_size());
  GroupChunks chunks;
  chunks.end = length / spec.block_size;
  chunks.first = std::min(chunks.end, CeilDiv(query.start, spec.block_size));
  chunks.mask = kv::ReachableMask(spec, {.start = chunks.first,
                                         .end = chunks.end,
                                         .alignment = config.scheduler_block_size(),
                                         .retention = query.state_every,
                                         .boundaries = boundaries});
  return chunks;
}

void AddGroup(const kv::CacheConfig& config, const SaveQuery& query, std::span<const Tokens> boundaries,
              GroupIndex group, std::vector<SaveObject>& plan) {
  const auto g = static_cast<size_t>(group.value());
  const GroupChunks chunks = ChunksOf(config, config.groups()[g], query, boundaries);
  for (int64_t chunk = chunks.first; chunk < chunks.end; ++chunk) {
    if (!chunks.mask[chunk - chunks.first]) continue;
    const HashIndex hash = kv::ChunkHashIndex(chunk, config.HashesPerChunk(group));
    for (int32_t rank = 0; rank < query.ranks[g]; ++rank) {
      plan.push_back({group, rank, hash, ParentOf(config, query.ranks, group, rank, hash)});
    }
  }
}

}  // namespace

store::ObjectKind ObjectKindOf(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return store::ObjectKind::kFull;
    case GroupKind::kWindow:
      return store::ObjectKind::kWindow;
    case GroupKind::kState:
      return store::ObjectKind::kState;
    case GroupKind::kChunked:
      return store::ObjectKind::kChunked;
  }
  return store::ObjectKind::kOther;
}

std::vector<GroupIndex> SaveOrderOfGroups(const kv::CacheConfig& config) {
  const auto place = [&config](GroupIndex group) {
    const GroupKind kind = config.groups()[static_cast<size_t>(group.value())].kind;
    return kind == GroupKind::kFull ? 0 : kind == GroupKind::kState ? 2 : 1;
  };
  std::vector<GroupIndex> order;
  for (size_t g = 0; g < config.groups().size(); ++g) order.emplace_back(static_cast<int32_t>(g));
  std::ranges::stable_sort(order, {}, place);
  return order;
}

std::optional<GroupIndex> FirstFullGroup(const kv::CacheConfig& config) {
  const auto groups = config.groups();
  const auto found = std::ranges::find(groups, GroupKind::kFull, &kv::GroupSpec::kind);
  if (found == groups.end()) return std::nullopt;
  return GroupIndex(static_cast<int32_t>(found - groups.begin()));
}

std::optional<SaveObject::Parent> ParentOf(const kv::CacheConfig& config, std::span<const int32_t> ranks,
                                           GroupIndex group, int32_t rank, HashIndex hash) {
  const auto g = static_cast<size_t>(group.value());
  if (config.groups()[g].kind == GroupKind::kFull) {
    const int64_t chunk = hash.value() / config.HashesPerChunk(group);
    if (chunk == 0) return std::nullopt;
    return SaveObject::Parent{group, rank, kv::ChunkHashIndex(chunk - 1, config.HashesPerChunk(group))};
  }
  const std::optional<GroupIndex> full = FirstFullGroup(config);
  if (!full) return std::nullopt;
  // Ranks share a full-attention namespace in equal runs (store_connector spec §3, replication factor).
  const int64_t full_rank = int64_t{rank} * ranks[static_cast<size_t>(full->value())] / ranks[g];
  const int64_t per_chunk = config.HashesPerChunk(*full);
  return SaveObject::Parent{*full, static_cast<int32_t>(full_rank),
                            kv::ChunkHashIndex(hash.value() / per_chunk, per_chunk)};
}

absl::StatusOr<std::vector<SaveObject>> PlanSave(const kv::CacheConfig& config, const SaveQuery& query) {
  TENURE_RETURN_IF_ERROR(Validate(config, query));
  const std::vector<Tokens> boundaries =
      kv::ReplayBoundaries(query.num_tokens, config.scheduler_block_size(), config.any_eagle());
  std::vector<SaveObject> plan;
  for (const GroupIndex group : SaveOrderOfGroups(config)) AddGroup(config, query, boundaries, group, plan);
  return plan;
}

SaveChains::SaveChains(std::span<const int32_t> ranks) {
  for (const int32_t count : ranks) {
    first_chain_.push_back(chains_.size());
    chains_.resize(chains_.size() + static_cast<size_t>(count));
  }
}

bool SaveChains::IsReachable(const SaveObject& object) const {
  if (stopped(object.group, object.rank)) return false;
  if (!object.parent) return true;
  const std::optional<HashIndex>& lost = ChainOf(object.parent->group, object.parent->rank).lost;
  return !lost || object.parent->hash < *lost;
}

void SaveChains::Record(const SaveObject& object, bool kept) {
  Chain& chain = chains_[Index(object.group, object.rank)];
  if (!kept) {
    chain.lost = std::min(chain.lost.value_or(object.hash), object.hash);
  } else if (!chain.lost) {
    chain.kept_end = HashIndex(object.hash.value() + 1);
  }
}

SaveProgress::SaveProgress(const kv::CacheConfig& config, const SaveQuery& query, std::span<const SaveObject> plan)
    : config_(config),
      start_(query.start),
      ranks_(query.ranks.begin(), query.ranks.end()),
      plan_(plan),
      chains_(ranks_) {}

const SaveObject* SaveProgress::Next() {
  while (position_ < plan_.size()) {
    const SaveObject& object = plan_[position_++];
    if (chains_.IsReachable(object)) return &object;
    ++skipped_;
  }
  return nullptr;
}

void SaveProgress::Record(store::PutAnswer answer) {
  TENURE_CHECK(position_ > 0);
  chains_.Record(plan_[position_ - 1], store::IsKept(answer));
}

Tokens SaveProgress::offset() const {
  std::optional<Tokens> offset;
  for (size_t g = 0; g < config_.groups().size(); ++g) {
    if (config_.groups()[g].kind != GroupKind::kFull) continue;
    const GroupIndex group(static_cast<int32_t>(g));
    for (int32_t rank = 0; rank < ranks_[g]; ++rank) {
      const Tokens kept = config_.hash_block_size() * chains_.kept_end(group, rank).value();
      const Tokens chain = std::max(kept, RoundDown(start_, config_.groups()[g].block_size));
      offset = offset ? std::min(*offset, chain) : chain;
    }
  }
  return offset.value_or(start_);
}

}  // namespace tenure::connector
