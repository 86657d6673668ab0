#include "tenure/kv/masks.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"

namespace tenure::kv {
namespace {

// What of a group can be read later, compiled once and asked per chunk: the only place that knows. A lookup asks it
// with dense retention and without boundaries, so that it accepts what any store mask kept.
class Reach {
 public:
  Reach(const GroupSpec& spec, std::optional<Tokens> alignment, std::optional<Tokens> retention,
        std::span<const Tokens> boundaries) {
    if (spec.kind == GroupKind::kWindow) {
      SetWindow(spec, alignment, retention, boundaries);
    } else if (spec.kind == GroupKind::kState) {
      SetState(spec, alignment, retention, boundaries);
    } else {
      all_ = true;
    }
  }

  bool all() const { return all_; }
  bool Has(int64_t chunk) const {
    if (all_) return true;
    if (period_ > 0 && chunk >= shift_ && (chunk - shift_) % period_ >= period_ - run_) return true;
    return std::any_of(ends_.begin(), ends_.end(),
                       [this, chunk](int64_t end) { return chunk < end && chunk >= end - run_; });
  }

 private:
  // The run of chunks that ends `shift_` after every period, and after each boundary.
  void SetWindow(const GroupSpec& spec, std::optional<Tokens> alignment, std::optional<Tokens> retention,
                 std::span<const Tokens> boundaries) {
    const Tokens block = spec.block_size;
    all_ = !alignment.has_value() || alignment->value() % block.value() != 0;
    if (all_) return;
    shift_ = spec.eagle ? 1 : 0;
    run_ = CeilDiv(spec.window - Tokens(1), block) + shift_;
    const Tokens segment = retention.value_or(*alignment);
    if (segment > Tokens()) {
      period_ = segment / block;
      all_ = run_ >= period_;
    }
    if (retention.has_value()) SetEnds(block, *alignment, boundaries);
  }

  // A state is one chunk, and a draft model does not move it.
  void SetState(const GroupSpec& spec, std::optional<Tokens> alignment, std::optional<Tokens> retention,
                std::span<const Tokens> boundaries) {
    all_ = !alignment.has_value() || !retention.has_value();
    if (all_) return;
    run_ = 1;
    if (*retention > Tokens()) {
      period_ = *retention / spec.block_size;
      all_ = period_ <= 1;
    }
    SetEnds(spec.block_size, *alignment, boundaries);
  }

  void SetEnds(Tokens block, Tokens alignment, std::span<const Tokens> boundaries) {
    for (const Tokens boundary : boundaries) ends_.push_back(RoundDown(boundary, alignment) / block + shift_);
  }

  bool all_ = false;
  int64_t shift_ = 0;
  int64_t run_ = 0;
  int64_t period_ = 0;         // 0: no periodic tails.
  std::vector<int64_t> ends_;  // Of the runs at boundaries.
};

ChunkMask MaskOf(const Reach& reach, int64_t start, int64_t end) {
  if (reach.all()) return ChunkMask::All();
  std::vector<bool> bits;
  bits.reserve(static_cast<size_t>(std::max<int64_t>(end - start, 0)));
  for (int64_t chunk = start; chunk < end; ++chunk) bits.push_back(reach.Has(chunk));
  return ChunkMask::Of(std::move(bits));
}

Reach LookupReach(const CacheConfig& config, GroupIndex group) {
  return Reach(config.UnitOf(group).spec, config.scheduler_block_size(), std::nullopt, {});
}

GroupIndex At(size_t group) { return GroupIndex(static_cast<int32_t>(group)); }

}  // namespace

std::vector<Tokens> ReplayBoundaries(Tokens num_tokens, Tokens scheduler_block_size, bool eagle) {
  TENURE_CHECK(num_tokens >= Tokens(1) && scheduler_block_size >= Tokens(1));
  const Tokens last = num_tokens - Tokens(1);
  if (!eagle) return {last};
  const auto dropped = [scheduler_block_size](Tokens tokens) {
    return std::max(RoundDown(tokens, scheduler_block_size) - scheduler_block_size, Tokens());
  };
  if (dropped(last) == dropped(num_tokens)) return {dropped(last)};
  return {dropped(last), dropped(num_tokens)};
}

Tokens EagleProofMargin(Tokens block_size, Tokens hash_block_size, bool fine) {
  return fine && block_size > hash_block_size ? hash_block_size : block_size;
}

Tokens StateCheckpoint(Tokens num_tokens, Tokens hash_block_size, bool eagle) {
  if (eagle) return std::max(RoundDown(num_tokens, hash_block_size) - hash_block_size, Tokens());
  return RoundDown(std::max(num_tokens - Tokens(1), Tokens()), hash_block_size);
}

ChunkMask ReachableMask(const GroupSpec& spec, const ReachableQuery& query) {
  return MaskOf(Reach(spec, query.alignment, query.retention, query.boundaries), query.start, query.end);
}

bool LookupMaskHas(const CacheConfig& config, GroupIndex group, int64_t chunk) {
  return LookupReach(config, group).Has(chunk);
}

std::vector<ChunkMask> LookupMask(const CacheConfig& config, Tokens length) {
  std::vector<ChunkMask> masks;
  for (size_t group = 0; group < config.groups().size(); ++group) {
    masks.push_back(MaskOf(LookupReach(config, At(group)), 0, length / config.groups()[group].block_size));
  }
  return masks;
}

std::vector<ChunkMask> StoreMask(const CacheConfig& config, const StoreQuery& query) {
  TENURE_CHECK(query.length >= Tokens() && query.start >= Tokens());
  TENURE_CHECK(query.length % config.hit_alignment() == Tokens());
  TENURE_CHECK(query.retention.value_or(Tokens()) % config.scheduler_block_size() == Tokens());
  const Tokens alignment = config.scheduler_block_size();
  std::vector<Tokens> boundaries;
  if (query.num_prompt_tokens.has_value()) {
    boundaries = ReplayBoundaries(*query.num_prompt_tokens, alignment, config.any_eagle());
  }
  std::vector<ChunkMask> masks;
  for (size_t group = 0; group < config.groups().size(); ++group) {
    const GroupSpec& spec = config.UnitOf(At(group)).spec;
    const int64_t end = query.length / spec.block_size;
    const int64_t start = std::min(end, CeilDiv(query.start, spec.block_size));
    if (spec.kind == GroupKind::kState) {
      masks.push_back(ChunkMask::Of(std::vector<bool>(static_cast<size_t>(end - start), false)));
    } else {
      masks.push_back(MaskOf(Reach(spec, alignment, query.retention, boundaries), start, end));
    }
  }
  return masks;
}

ChunkRange LoadRange(const CacheConfig& config, GroupIndex group, Tokens hit) {
  if (hit <= Tokens()) return {};
  const GroupSpec& spec = config.groups()[static_cast<size_t>(group.value())];
  const Tokens block = spec.block_size;
  switch (spec.kind) {
    case GroupKind::kFull:
      return {0, CeilDiv(hit, block)};
    case GroupKind::kWindow: {
      const int64_t end = hit / block;
      return {std::max<int64_t>(end - std::max<int64_t>(1, CeilDiv(spec.window - Tokens(1), block)), 0), end};
    }
    case GroupKind::kState:
      return {CeilDiv(hit, block) - 1, CeilDiv(hit, block)};
    case GroupKind::kChunked: {
      const int64_t end = hit / block;
      return {std::min(RoundDown(hit, spec.chunk) / block, end), end};
    }
  }
  return {};
}

std::vector<ChunkMask> LoadMask(const CacheConfig& config, Tokens hit) {
  std::vector<ChunkMask> masks;
  for (size_t group = 0; group < config.groups().size(); ++group) {
    const ChunkRange range = LoadRange(config, At(group), hit);
    std::vector<bool> bits(static_cast<size_t>(range.end), false);
    std::fill(bits.begin() + range.first, bits.end(), true);
    masks.push_back(ChunkMask::Of(std::move(bits)));
  }
  return masks;
}

}  // namespace tenure::kv
