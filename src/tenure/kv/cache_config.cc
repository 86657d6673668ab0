#include "tenure/kv/cache_config.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

bool IsFine(const CacheConfig::Options& options, const GroupSpec& spec) {
  return options.fine && (spec.kind == GroupKind::kFull || spec.kind == GroupKind::kState);
}

absl::Status CheckSizes(const CacheConfig::Options& options) {
  const int64_t hash = options.hash_block_size.value();
  const int64_t scheduler = options.scheduler_block_size.value();
  if (hash < 1 || hash > CacheConfig::kTokensMax) {
    return InvalidArgument("hash_block_size is {}; use 1 to {} tokens", hash, CacheConfig::kTokensMax);
  }
  if (scheduler < 1 || scheduler > CacheConfig::kTokensMax || scheduler % hash != 0) {
    return InvalidArgument("scheduler_block_size is {}; use a multiple of hash_block_size {}, at most {}", scheduler,
                           hash, CacheConfig::kTokensMax);
  }
  if (options.groups.empty() || options.groups.size() > static_cast<size_t>(CacheConfig::kGroupsMax)) {
    return InvalidArgument("groups has {} entries; use 1 to {}", options.groups.size(), CacheConfig::kGroupsMax);
  }
  return absl::OkStatus();
}

absl::Status CheckChunked(const CacheConfig::Options& options, const GroupSpec& spec, size_t index) {
  if (spec.chunk.value() < 1 || spec.chunk.value() > CacheConfig::kTokensMax) {
    return InvalidArgument("groups[{}].chunk is {}; use 1 to {} tokens", index, spec.chunk.value(),
                           CacheConfig::kTokensMax);
  }
  if (spec.block_size != options.scheduler_block_size) {
    return InvalidArgument("groups[{}].block_size is {}; a chunked group needs scheduler_block_size {}", index,
                           spec.block_size.value(), options.scheduler_block_size.value());
  }
  if (spec.eagle) return InvalidArgument("groups[{}].eagle is true; a chunked group cannot be eagle", index);
  if (options.fine)
    return InvalidArgument("fine is true; groups[{}] is chunked, which has whole-block hits only", index);
  return absl::OkStatus();
}

absl::Status CheckGroup(const CacheConfig::Options& options, size_t index) {
  const GroupSpec& spec = options.groups[index];
  const int64_t size = spec.block_size.value();
  const int64_t hash = options.hash_block_size.value();
  if (size < 1 || size % hash != 0) {
    return InvalidArgument("groups[{}].block_size is {}; use a multiple of hash_block_size {}", index, size, hash);
  }
  if (options.scheduler_block_size.value() % size != 0) {
    return InvalidArgument("groups[{}].block_size is {}; use a divisor of scheduler_block_size {}", index, size,
                           options.scheduler_block_size.value());
  }
  if (spec.kind == GroupKind::kWindow && (spec.window.value() < 1 || spec.window.value() > CacheConfig::kTokensMax)) {
    return InvalidArgument("groups[{}].window is {}; use 1 to {} tokens", index, spec.window.value(),
                           CacheConfig::kTokensMax);
  }
  return spec.kind == GroupKind::kChunked ? CheckChunked(options, spec, index) : absl::OkStatus();
}

// Whether two groups are one lookup unit: the eagle flag belongs to the unit, not to the spec.
bool SameUnit(GroupSpec a, GroupSpec b) {
  a.eagle = b.eagle = false;
  return a == b;
}

std::vector<LookupUnit> MergeUnits(const CacheConfig::Options& options) {
  std::vector<LookupUnit> units;
  for (size_t index = 0; index < options.groups.size(); ++index) {
    const GroupSpec& spec = options.groups[index];
    auto unit = std::find_if(units.begin(), units.end(),
                             [&spec](const LookupUnit& other) { return SameUnit(other.spec, spec); });
    if (unit == units.end()) {
      LookupUnit fresh;
      fresh.spec = spec;
      fresh.hashes_per_chunk = spec.block_size / options.hash_block_size;
      fresh.fine = IsFine(options, spec);
      unit = units.insert(units.end(), std::move(fresh));
    }
    unit->spec.eagle |= spec.eagle;
    unit->groups.emplace_back(static_cast<int32_t>(index));
  }
  std::stable_partition(units.begin(), units.end(),
                        [](const LookupUnit& unit) { return unit.spec.kind == GroupKind::kFull; });
  return units;
}

}  // namespace

absl::StatusOr<CacheConfig> CacheConfig::Create(Options options) {
  TENURE_RETURN_IF_ERROR(CheckSizes(options));
  const bool flagged =
      std::any_of(options.groups.begin(), options.groups.end(), [](const GroupSpec& spec) { return spec.eagle; });
  for (GroupSpec& spec : options.groups) {
    if (options.use_eagle && !flagged) spec.eagle = true;
    // Fields of other kinds must not tell equal groups apart.
    if (spec.kind != GroupKind::kWindow) spec.window = Tokens();
    if (spec.kind != GroupKind::kChunked) spec.chunk = Tokens();
  }
  for (size_t index = 0; index < options.groups.size(); ++index) {
    TENURE_RETURN_IF_ERROR(CheckGroup(options, index));
  }
  return CacheConfig(std::move(options));
}

CacheConfig::CacheConfig(Options options) : options_(std::move(options)), units_(MergeUnits(options_)) {
  unit_of_group_.resize(options_.groups.size());
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (const GroupIndex group : units_[unit].groups) unit_of_group_[static_cast<size_t>(group.value())] = unit;
  }
}

bool CacheConfig::any_eagle() const {
  return std::any_of(units_.begin(), units_.end(), [](const LookupUnit& unit) { return unit.spec.eagle; });
}

const LookupUnit& CacheConfig::UnitOf(GroupIndex group) const {
  TENURE_CHECK(group.value() >= 0 && static_cast<size_t>(group.value()) < unit_of_group_.size());
  return units_[unit_of_group_[static_cast<size_t>(group.value())]];
}

}  // namespace tenure::kv
