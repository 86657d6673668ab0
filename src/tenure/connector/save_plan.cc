#include "tenure/connector/save_plan.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
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

std::optional<size_t> FirstFullGroup(const kv::CacheConfig& config) {
  const auto groups = config.groups();
  const auto found = std::ranges::find(groups, GroupKind::kFull, &kv::GroupSpec::kind);
  if (found == groups.end()) return std::nullopt;
  return static_cast<size_t>(found - groups.begin());
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

class Planner {
 public:
  Planner(const kv::CacheConfig& config, const SaveQuery& query)
      : config_(config),
        query_(query),
        first_full_(FirstFullGroup(config)),
        boundaries_(kv::ReplayBoundaries(query.num_tokens, config.scheduler_block_size(), config.any_eagle())) {}

  std::vector<SaveObject> Plan() && {
    AddGroups([](GroupKind kind) { return kind == GroupKind::kFull; });
    AddGroups([](GroupKind kind) { return kind == GroupKind::kWindow || kind == GroupKind::kChunked; });
    AddGroups([](GroupKind kind) { return kind == GroupKind::kState; });
    return std::move(plan_);
  }

 private:
  template <typename IsWanted>
  void AddGroups(IsWanted is_wanted) {
    for (size_t g = 0; g < config_.groups().size(); ++g) {
      if (is_wanted(config_.groups()[g].kind)) AddGroup(g);
    }
  }
  void AddGroup(size_t g) {
    const GroupIndex group(static_cast<int32_t>(g));
    const GroupChunks chunks = ChunksOf(config_, config_.groups()[g], query_, boundaries_);
    const int64_t per_chunk = config_.HashesPerChunk(group);
    for (int64_t chunk = chunks.first; chunk < chunks.end; ++chunk) {
      if (!chunks.mask[chunk - chunks.first]) continue;
      for (int32_t rank = 0; rank < query_.ranks[g]; ++rank) {
        SaveObject object{group, rank, HashIndex((chunk + 1) * per_chunk - 1), std::nullopt};
        object.parent = ParentOf(object);
        plan_.push_back(object);
      }
    }
  }
  std::optional<SaveObject::Parent> ParentOf(const SaveObject& object) const {
    const size_t g = static_cast<size_t>(object.group.value());
    if (config_.groups()[g].kind == GroupKind::kFull) {
      const int64_t before = object.hash.value() - config_.HashesPerChunk(object.group);
      if (before < 0) return std::nullopt;
      return SaveObject::Parent{object.group, object.rank, HashIndex(before)};
    }
    if (!first_full_) return std::nullopt;
    const GroupIndex full(static_cast<int32_t>(*first_full_));
    // Ranks share a full-attention namespace in equal runs (store_connector spec §3, replication factor).
    const int64_t rank = int64_t{object.rank} * query_.ranks[*first_full_] / query_.ranks[g];
    const int64_t per_chunk = config_.HashesPerChunk(full);
    const int64_t chunk = object.hash.value() / per_chunk;
    return SaveObject::Parent{full, static_cast<int32_t>(rank), HashIndex((chunk + 1) * per_chunk - 1)};
  }

  const kv::CacheConfig& config_;
  const SaveQuery& query_;
  std::optional<size_t> first_full_;
  std::vector<Tokens> boundaries_;
  std::vector<SaveObject> plan_;
};

}  // namespace

absl::StatusOr<std::vector<SaveObject>> PlanSave(const kv::CacheConfig& config, const SaveQuery& query) {
  TENURE_RETURN_IF_ERROR(Validate(config, query));
  return Planner(config, query).Plan();
}

SaveProgress::SaveProgress(const kv::CacheConfig& config, const SaveQuery& query, std::span<const SaveObject> plan)
    : config_(config), start_(query.start), plan_(plan) {
  for (size_t g = 0; g < config.groups().size(); ++g) {
    first_chain_.push_back(chains_.size());
    const Tokens whole = RoundDown(query.start, config.groups()[g].block_size);
    const HashIndex kept_end(whole / config.hash_block_size());
    chains_.insert(chains_.end(), static_cast<size_t>(query.ranks[g]), Chain{false, kept_end});
  }
}

SaveProgress::Chain& SaveProgress::ChainOf(GroupIndex group, int32_t rank) {
  return chains_[first_chain_[static_cast<size_t>(group.value())] + static_cast<size_t>(rank)];
}

bool SaveProgress::IsReachable(const SaveObject& object) {
  if (ChainOf(object.group, object.rank).stopped) return false;
  return !object.parent || object.parent->hash < ChainOf(object.parent->group, object.parent->rank).kept_end;
}

const SaveObject* SaveProgress::Next() {
  while (position_ < plan_.size()) {
    const SaveObject& object = plan_[position_++];
    if (IsReachable(object)) return &object;
    ++skipped_;
  }
  return nullptr;
}

void SaveProgress::Record(store::PutAnswer answer) {
  TENURE_CHECK(position_ > 0);
  const SaveObject& object = plan_[position_ - 1];
  Chain& chain = ChainOf(object.group, object.rank);
  if (!store::IsKept(answer)) {
    chain.stopped = true;
    return;
  }
  chain.kept_end = HashIndex(object.hash.value() + 1);
}

Tokens SaveProgress::offset() const {
  std::optional<Tokens> offset;
  for (size_t g = 0; g < config_.groups().size(); ++g) {
    if (config_.groups()[g].kind != GroupKind::kFull) continue;
    const size_t end = g + 1 < first_chain_.size() ? first_chain_[g + 1] : chains_.size();
    for (size_t chain = first_chain_[g]; chain < end; ++chain) {
      const Tokens kept = config_.hash_block_size() * chains_[chain].kept_end.value();
      offset = offset ? std::min(*offset, kept) : kept;
    }
  }
  return offset.value_or(start_);
}

}  // namespace tenure::connector
