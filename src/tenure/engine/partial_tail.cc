#include "tenure/engine/partial_tail.h"

#include <algorithm>

#include "tenure/kv/masks.h"

namespace tenure::engine {
namespace {

// Whether a state was handed over at `tokens`, inside a block of its group.
bool HasUnalignedState(const kv::CacheConfig& config, std::span<const BoundaryPut> states, Tokens tokens) {
  return std::any_of(states.begin(), states.end(), [&config, tokens](const BoundaryPut& put) {
    return put.tokens == tokens && put.tokens % config.UnitOf(put.group).spec.block_size != Tokens();
  });
}

void AddGroup(const kv::CacheConfig& config, const PartialTailQuery& query, kv::GroupIndex group, Tokens boundary,
              std::vector<BoundaryPut>& puts) {
  const kv::LookupUnit& unit = config.UnitOf(group);
  const Tokens block = unit.spec.block_size;
  Tokens end = boundary;
  if (unit.spec.eagle) end += kv::EagleProofMargin(block, config.hash_block_size(), unit.fine);
  if (end > query.completed || end / config.hash_block_size() > query.num_hashes) return;
  const std::vector<BlockId>& table = query.blocks[static_cast<size_t>(group.value())];
  const int64_t chunk_end = std::min(CeilDiv(end, block), static_cast<int64_t>(table.size()));
  for (int64_t chunk = RoundDown(boundary, config.scheduler_block_size()) / block; chunk < chunk_end; ++chunk) {
    const BlockId id = table[static_cast<size_t>(chunk)];
    if (id != kNullBlock) puts.push_back({group, id, std::min(block * (chunk + 1), end)});
  }
}

}  // namespace

std::vector<BoundaryPut> PartialTailPuts(const kv::CacheConfig& config, const PartialTailQuery& query) {
  const Tokens boundary = kv::StateCheckpoint(query.num_prompt_tokens, config.hash_block_size(), config.any_eagle());
  // A state handed over elsewhere is a junction of shared prefixes; the normal saves store the rest of it.
  if (!query.publish && !HasUnalignedState(config, query.states, boundary)) return {};
  if (boundary == Tokens() || boundary / config.hash_block_size() > query.num_hashes) return {};
  std::vector<BoundaryPut> puts;
  for (size_t g = 0; g < config.groups().size(); ++g) {
    if (config.groups()[g].kind == kv::GroupKind::kState) continue;
    AddGroup(config, query, kv::GroupIndex(static_cast<int32_t>(g)), boundary, puts);
  }
  return puts;
}

}  // namespace tenure::engine
