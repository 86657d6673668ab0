#include "tenure/kv/block_sizes.h"

#include <algorithm>
#include <numeric>

#include "tenure/base/status.h"
#include "tenure/kv/cache_config.h"

namespace tenure::kv {
namespace {

absl::Status CheckFields(const BlockSizeOptions& options) {
  if (options.groups.empty()) return InvalidArgument("groups is empty; a model has at least one group");
  if (options.dcp_size < 1 || options.dcp_size > 4096) {
    return InvalidArgument("dcp_size is {}; use 1 to 4096", options.dcp_size);
  }
  if (options.prefix_match_unit.has_value() && options.prefix_match_unit->value() < 1) {
    return InvalidArgument("prefix_match_unit is {}; use at least 1 token", options.prefix_match_unit->value());
  }
  for (size_t index = 0; index < options.groups.size(); ++index) {
    const ModelGroup& group = options.groups[index];
    if (group.block_size.value() < 1 || group.block_size.value() > CacheConfig::kTokensMax / options.dcp_size) {
      return InvalidArgument("groups[{}].block_size is {}; use 1 to {} tokens", index, group.block_size.value(),
                             CacheConfig::kTokensMax / options.dcp_size);
    }
    if (group.tokens_per_state < 1) {
      return InvalidArgument("groups[{}].tokens_per_state is {}; use at least 1", index, group.tokens_per_state);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tokens> LeastCommonMultiple(const BlockSizeOptions& options) {
  int64_t multiple = 1;
  for (const ModelGroup& group : options.groups) {
    const int64_t size = EffectiveBlockSize(group, options.dcp_size).value();
    const int64_t factor = size / std::gcd(multiple, size);
    if (factor > CacheConfig::kTokensMax / multiple) {
      return InvalidArgument(
          "groups have block sizes whose least common multiple is above {}; use sizes that divide each other",
          CacheConfig::kTokensMax);
    }
    multiple *= factor;
  }
  return Tokens(multiple);
}

absl::StatusOr<Tokens> HashUnit(const BlockSizeOptions& options) {
  const bool any = std::any_of(options.groups.begin(), options.groups.end(),
                               [](const ModelGroup& group) { return group.prefix_cacheable; });
  int64_t unit = 0;
  for (const ModelGroup& group : options.groups) {
    if (group.prefix_cacheable || !any) unit = std::gcd(unit, EffectiveBlockSize(group, options.dcp_size).value());
  }
  if (options.prefix_match_unit.has_value()) unit = options.prefix_match_unit->value();
  for (size_t index = 0; index < options.groups.size(); ++index) {
    const int64_t size = EffectiveBlockSize(options.groups[index], options.dcp_size).value();
    if (options.groups[index].prefix_cacheable && size % unit != 0) {
      return InvalidArgument("prefix_match_unit is {}; use a divisor of groups[{}].block_size {}", unit, index, size);
    }
  }
  return Tokens(unit);
}

// Hits may end inside a block: a state group has states there, and every group can be searched there.
bool HasPartialHits(const BlockSizeOptions& options, Tokens hash) {
  bool wanted = false;
  for (const ModelGroup& group : options.groups) {
    const bool state = group.kind == GroupKind::kState;
    const bool fine = state || group.kind == GroupKind::kFull;
    if (group.prefix_cacheable && !fine && EffectiveBlockSize(group, options.dcp_size) != hash) return false;
    if (!state || !group.state_align) continue;
    wanted |= options.dcp_size == 1 ? group.block_size > hash : group.block_size >= hash;
  }
  return wanted;
}

absl::Status CheckStates(const BlockSizeOptions& options, Tokens alignment) {
  for (size_t index = 0; index < options.groups.size(); ++index) {
    const int64_t tokens = options.groups[index].tokens_per_state;
    if (alignment.value() % tokens != 0) {
      return InvalidArgument("groups[{}].tokens_per_state is {}; use a divisor of the hit alignment {}", index, tokens,
                             alignment.value());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockSizes> ResolveSingle(const BlockSizeOptions& options) {
  const Tokens block = EffectiveBlockSize(options.groups.front(), options.dcp_size);
  if (options.prefix_match_unit.value_or(block) != block) {
    return InvalidArgument("prefix_match_unit is {}; a model with one group matches whole blocks of {} tokens",
                           options.prefix_match_unit->value(), block.value());
  }
  return BlockSizes{block, block, block};
}

}  // namespace

Tokens EffectiveBlockSize(const ModelGroup& group, int64_t dcp_size) {
  return group.dcp_sharded ? group.block_size * dcp_size : group.block_size;
}

absl::StatusOr<BlockSizes> ResolveBlockSizes(const BlockSizeOptions& options) {
  TENURE_RETURN_IF_ERROR(CheckFields(options));
  if (options.groups.size() == 1) return ResolveSingle(options);
  TENURE_ASSIGN_OR_RETURN(const Tokens scheduler, LeastCommonMultiple(options));
  const bool unaligned = std::any_of(options.groups.begin(), options.groups.end(), [](const ModelGroup& group) {
    return group.kind == GroupKind::kState && !group.state_align;
  });
  if (unaligned) return BlockSizes{scheduler, scheduler, scheduler};
  TENURE_ASSIGN_OR_RETURN(const Tokens hash, HashUnit(options));
  const bool partial = options.prefix_caching && HasPartialHits(options, hash);
  const BlockSizes sizes = {scheduler, hash, partial ? hash : scheduler};
  TENURE_RETURN_IF_ERROR(CheckStates(options, sizes.hit_alignment));
  return sizes;
}

}  // namespace tenure::kv
