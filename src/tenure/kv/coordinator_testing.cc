#include "tenure/kv/coordinator_testing.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"

namespace tenure::kv::testing {
namespace {

int64_t RoundUpDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The index of the hash that keys chunk `i` of `block` tokens.
int64_t ChunkHash(int64_t i, int64_t block, int64_t hash) { return (i + 1) * (block / hash) - 1; }

UnitHit FullHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query) {
  const int64_t block = spec.block_size.value();
  const int64_t alignment = query.alignment;
  int64_t chunks = 0;
  while (chunks < query.length_max / block && present.contains(ChunkHash(chunks, block, query.hash_block_size))) {
    ++chunks;
  }
  int64_t hit = chunks * block;
  if (alignment < block && block % alignment == 0) {
    const int64_t per_chunk = block / alignment;
    const int64_t above =
        std::min({chunks * per_chunk + per_chunk - 1, query.length_max / alignment, query.num_hashes});
    for (int64_t f = above - 1; f >= chunks * per_chunk; --f) {
      if (present.contains(f)) {
        hit = (f + 1) * alignment;
        break;
      }
    }
  }
  if (query.drop_eagle && hit > 0) hit -= std::min(alignment, block);
  hit -= hit % alignment;
  return {hit, std::string(static_cast<size_t>(RoundUpDiv(hit, block)), '1')};
}

UnitHit WindowHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query) {
  const int64_t block = spec.block_size.value();
  const bool drop = query.drop_eagle;
  const int64_t need = RoundUpDiv(spec.window.value() - 1, block) + (drop ? 1 : 0);
  const int64_t chunks = query.length_max / block;
  std::string blocks(static_cast<size_t>(chunks), '0');
  int64_t run = 0;
  bool matched = false;
  for (int64_t i = chunks - 1; i >= 0; --i) {
    if (!present.contains(ChunkHash(i, block, query.hash_block_size))) {
      run = 0;
      continue;
    }
    if (run == 0 && block != query.alignment && ((drop ? i : i + 1) * block) % query.alignment != 0) continue;
    blocks[static_cast<size_t>(i)] = '1';
    ++run;
    if (run >= need) {
      blocks.resize(static_cast<size_t>(i + run));
      matched = true;
      break;
    }
  }
  const auto pop_until_aligned = [&] {
    while (block != query.alignment && (static_cast<int64_t>(blocks.size()) * block) % query.alignment != 0) {
      blocks.pop_back();
    }
  };
  if (!matched) {
    blocks.resize(static_cast<size_t>(run));
    pop_until_aligned();
  }
  if (drop && !blocks.empty()) {
    blocks.pop_back();
    pop_until_aligned();
  }
  return {static_cast<int64_t>(blocks.size()) * block, blocks};
}

UnitHit StateHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query) {
  const int64_t block = spec.block_size.value();
  const int64_t alignment = query.alignment;
  if (alignment < block && block % alignment == 0) {
    for (int64_t f = std::min(query.length_max / alignment, query.num_hashes) - 1; f >= 0; --f) {
      if (present.contains(f))
        return {(f + 1) * alignment, std::string(static_cast<size_t>(f / (block / alignment)), '0') + "1"};
    }
    return {};
  }
  for (int64_t i = query.length_max / block - 1; i >= 0; --i) {
    const bool aligned = block == alignment || ((i + 1) * block) % alignment == 0;
    if (aligned && present.contains(ChunkHash(i, block, query.hash_block_size))) {
      return {(i + 1) * block, std::string(static_cast<size_t>(i), '0') + "1"};
    }
  }
  return {};
}

UnitHit ChunkedHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query) {
  const int64_t block = spec.block_size.value();
  const int64_t chunk = spec.chunk.value();
  const int64_t free = (query.length_max / chunk * chunk) / block;
  std::string blocks(static_cast<size_t>(free), '0');
  for (int64_t i = free; i < query.length_max / block; ++i) {
    if (!present.contains(ChunkHash(i, block, query.hash_block_size))) break;
    blocks += '1';
  }
  return {static_cast<int64_t>(blocks.size()) * block, blocks};
}

// A lookup unit as the search sees it. Found here anew, not taken from the configuration.
struct Unit {
  GroupSpec spec;
  std::vector<size_t> groups;
  std::set<int64_t> present;  // In every group of it.
  int64_t margin = 0;
  std::optional<UnitHit> found;
  bool verified = false;
};

std::vector<Unit> FindUnits(const CacheConfig& config, const PresenceSet& presence) {
  std::vector<Unit> full;
  std::vector<Unit> others;
  for (size_t g = 0; g < config.groups().size(); ++g) {
    const GroupSpec& spec = config.groups()[g];
    std::vector<Unit>& list = spec.kind == GroupKind::kFull ? full : others;
    Unit* home = nullptr;
    for (Unit& unit : list) {
      const bool same = unit.spec.kind == spec.kind && unit.spec.block_size == spec.block_size &&
                        unit.spec.window == spec.window && unit.spec.chunk == spec.chunk;
      if (same) home = &unit;
    }
    if (home == nullptr) {
      home = &list.emplace_back();
      home->spec = spec;
      home->present = presence.groups[g];
    }
    std::set<int64_t> both;
    std::set_intersection(home->present.begin(), home->present.end(), presence.groups[g].begin(),
                          presence.groups[g].end(), std::inserter(both, both.end()));
    home->present = both;
    home->groups.push_back(g);
    home->spec.eagle = home->spec.eagle || spec.eagle;
    const bool supports = spec.kind == GroupKind::kFull || spec.kind == GroupKind::kState;
    const bool small = config.fine() && supports && spec.block_size > config.hash_block_size();
    home->margin = small ? config.hash_block_size().value() : spec.block_size.value();
  }
  full.insert(full.end(), others.begin(), others.end());
  return full;
}

bool IsFull(const Unit& unit) { return unit.spec.kind == GroupKind::kFull; }

// One pass over the units; returns the length after it.
int64_t SearchPass(const CacheConfig& config, std::vector<Unit>& units, int64_t num_hashes, int64_t hit,
                   bool apply_eagle) {
  const int64_t hash = config.hash_block_size().value();
  int64_t current = hit;
  for (Unit& unit : units) {
    if (IsFull(unit) && unit.found.has_value()) {
      current = std::min(current, unit.found->length);
      continue;
    }
    const bool drop = apply_eagle && unit.spec.eagle && !unit.verified;
    int64_t length_max = current;
    if (drop && unit.spec.kind != GroupKind::kState) length_max = std::min(current + unit.margin, num_hashes * hash);
    unit.found =
        OracleUnitHit(unit.spec, unit.present, {hash, num_hashes, length_max, config.hit_alignment().value(), drop});
    if (drop) {
      unit.verified = true;
    } else if (unit.found->length < current) {
      for (Unit& other : units) other.verified = false;
    }
    current = unit.found->length;
  }
  return current;
}

int64_t Converge(const CacheConfig& config, std::vector<Unit>& units, int64_t num_hashes, int64_t length_max,
                 bool apply_eagle) {
  if (units.size() == 1) {
    Unit& unit = units.front();
    unit.found = OracleUnitHit(unit.spec, unit.present,
                               {config.hash_block_size().value(), num_hashes, length_max,
                                config.hit_alignment().value(), apply_eagle && unit.spec.eagle});
    return unit.found->length;
  }
  int64_t hit = length_max;
  while (true) {
    const int64_t current = SearchPass(config, units, num_hashes, hit, apply_eagle);
    if (current >= hit) return hit;
    hit = current;
    if (units.size() == 2 && IsFull(units.front())) return hit;
  }
}

// §1.3 with no retention and no boundaries.
bool InLookupMask(const CacheConfig& config, const GroupSpec& spec, int64_t i) {
  if (spec.kind != GroupKind::kWindow) return true;
  const int64_t block = spec.block_size.value();
  const int64_t shift = spec.eagle ? 1 : 0;
  const int64_t need = RoundUpDiv(spec.window.value() - 1, block) + shift;
  const int64_t period = config.scheduler_block_size().value() / block;
  if (need >= period) return true;
  return i >= shift && (i - shift) % period >= period - need;
}

// The boundary whose hash keys the end of the hit in this group: §4 step 7.
std::optional<int64_t> TailBoundary(const CacheConfig& config, const PresenceSet& presence, size_t g, int64_t length) {
  const int64_t hash = config.hash_block_size().value();
  const std::set<int64_t>& present = presence.groups[g];
  if (present.contains(length / hash - 1)) return length;
  if (!config.fine()) return std::nullopt;
  const int64_t block = config.groups()[g].block_size.value();
  const int64_t chunk = RoundUpDiv(length, block) - 1;
  const int64_t end = std::min((chunk + 1) * block / hash, presence.num_hashes);
  for (int64_t k = length / hash; k < end; ++k) {
    if (present.contains(k)) return (k + 1) * hash;
  }
  return std::nullopt;
}

}  // namespace

UnitHit OracleUnitHit(const GroupSpec& spec, const std::set<int64_t>& present, const UnitQuery& query) {
  switch (spec.kind) {
    case GroupKind::kFull:
      return FullHit(spec, present, query);
    case GroupKind::kWindow:
      return WindowHit(spec, present, query);
    case GroupKind::kState:
      return StateHit(spec, present, query);
    case GroupKind::kChunked:
      return ChunkedHit(spec, present, query);
  }
  return {};
}

CoordinatorHit OracleHit(const CacheConfig& config, const PresenceSet& presence, int64_t length_max, bool apply_eagle) {
  std::vector<Unit> units = FindUnits(config, presence);
  CoordinatorHit result;
  result.length = Converge(config, units, presence.num_hashes, length_max, apply_eagle);
  result.blocks.resize(config.groups().size());
  for (const Unit& unit : units) {
    std::string blocks = unit.found->blocks;
    if (IsFull(unit)) {
      const auto kept = static_cast<size_t>(RoundUpDiv(result.length, unit.spec.block_size.value()));
      blocks.resize(std::min(blocks.size(), kept));
    }
    for (const size_t g : unit.groups) result.blocks[g] = blocks;
  }
  return result;
}

std::vector<std::string> OracleLoadMask(const CacheConfig& config, int64_t length) {
  PresenceSet everything;
  everything.num_hashes = length / config.hash_block_size().value();
  std::set<int64_t> all;
  for (int64_t k = 0; k < everything.num_hashes; ++k) all.insert(all.end(), k);
  everything.groups.assign(config.groups().size(), all);
  return OracleHit(config, everything, length, /*apply_eagle=*/false).blocks;
}

std::vector<GroupHash> OracleCandidates(const CacheConfig& config, int64_t num_hashes, int64_t num_tokens) {
  const int64_t hash = config.hash_block_size().value();
  const int64_t alignment = config.hit_alignment().value();
  const int64_t length = num_tokens / alignment * alignment;
  std::vector<GroupHash> candidates;
  if (num_hashes == 0 || length <= 0) return candidates;
  PresenceSet nothing;
  nothing.groups.resize(config.groups().size());
  const std::vector<Unit> units = FindUnits(config, nothing);
  for (size_t g = 0; g < config.groups().size(); ++g) {
    const auto unit = std::find_if(units.begin(), units.end(), [g](const Unit& one) {
      return std::find(one.groups.begin(), one.groups.end(), g) != one.groups.end();
    });
    TENURE_CHECK(unit != units.end());
    const int64_t block = unit->spec.block_size.value();
    const GroupIndex group(static_cast<int32_t>(g));
    if (config.fine()) {
      for (int64_t k = 0; k < std::min(num_hashes, length / hash); ++k) candidates.push_back({group, HashIndex(k)});
      continue;
    }
    for (int64_t i = 0; i < std::min(num_hashes / (block / hash), length / block); ++i) {
      if (InLookupMask(config, unit->spec, i)) candidates.push_back({group, HashIndex(ChunkHash(i, block, hash))});
    }
  }
  return candidates;
}

Hit OracleLookup(const CacheConfig& config, const PresenceSet& presence, int64_t num_tokens) {
  PresenceSet found;
  found.num_hashes = presence.num_hashes;
  found.groups.resize(presence.groups.size());
  for (const GroupHash& candidate : OracleCandidates(config, presence.num_hashes, num_tokens)) {
    const auto g = static_cast<size_t>(candidate.group.value());
    if (presence.groups[g].contains(candidate.hash.value())) found.groups[g].insert(candidate.hash.value());
  }
  const int64_t alignment = config.hit_alignment().value();
  int64_t length = OracleHit(config, found, num_tokens / alignment * alignment).length;
  if (length >= num_tokens) {
    const int64_t below = std::max<int64_t>(num_tokens - 1, 0) / alignment * alignment;
    length = below <= 0 ? 0 : OracleHit(config, found, below).length;
  }
  if (length <= 0) return {};
  Hit hit;
  hit.length = Tokens(length);
  for (size_t g = 0; g < config.groups().size(); ++g) {
    hit.tails.emplace_back(TailBoundary(config, found, g, length).value_or(length));
  }
  return MissingLoads(config, found, hit).empty() ? hit : Hit{};
}

std::vector<GroupHash> MissingLoads(const CacheConfig& config, const PresenceSet& presence, const Hit& hit) {
  std::vector<GroupHash> missing;
  const int64_t length = hit.length.value();
  const int64_t hash = config.hash_block_size().value();
  const std::vector<std::string> blocks = OracleLoadMask(config, length);
  for (size_t g = 0; g < config.groups().size() && length > 0; ++g) {
    const int64_t block = config.groups()[g].block_size.value();
    for (int64_t i = 0; i < static_cast<int64_t>(blocks[g].size()); ++i) {
      if (blocks[g][static_cast<size_t>(i)] == '0') continue;
      const int64_t end = std::min((i + 1) * block, length);
      const int64_t key = (end == length ? hit.tails[g].value() : end) / hash - 1;
      if (!presence.groups[g].contains(key)) missing.push_back({GroupIndex(static_cast<int32_t>(g)), HashIndex(key)});
    }
  }
  return missing;
}

bool BruteForceBoundary(const CacheConfig& config, const PresenceSet& presence, int64_t length) {
  TENURE_CHECK(length > 0 && length % config.hit_alignment().value() == 0);
  Hit hit;
  hit.length = Tokens(length);
  for (size_t g = 0; g < config.groups().size(); ++g) {
    hit.tails.emplace_back(TailBoundary(config, presence, g, length).value_or(length));
  }
  if (!MissingLoads(config, presence, hit).empty()) return false;
  const int64_t hash = config.hash_block_size().value();
  for (const Unit& unit : FindUnits(config, presence)) {
    if (!unit.spec.eagle) continue;
    const int64_t block = unit.spec.block_size.value();
    if (unit.spec.kind == GroupKind::kWindow && !unit.present.contains(ChunkHash(length / block, block, hash))) {
      return false;
    }
    if (!IsFull(unit)) continue;
    const int64_t proof = length + std::min(block, config.hit_alignment().value());
    for (int64_t i = 0; i < proof / block; ++i) {
      if (!unit.present.contains(ChunkHash(i, block, hash))) return false;
    }
    if (proof % block == 0) continue;
    const auto cover = unit.present.lower_bound(proof / hash - 1);
    if (cover == unit.present.end() || *cover > ChunkHash(proof / block, block, hash)) return false;
  }
  return true;
}

PresenceSet ClosedPart(const CacheConfig& config, const PresenceSet& presence) {
  const int64_t hash = config.hash_block_size().value();
  PresenceSet closed;
  closed.num_hashes = presence.num_hashes;
  closed.groups.resize(presence.groups.size());
  std::optional<size_t> first_full;
  for (size_t g = 0; g < config.groups().size(); ++g) {
    if (config.groups()[g].kind != GroupKind::kFull) continue;
    if (!first_full.has_value()) first_full = g;
    const int64_t per_chunk = config.groups()[g].block_size.value() / hash;
    for (const int64_t k : presence.groups[g]) {
      const int64_t chunk = k / per_chunk;
      if (chunk == 0 || closed.groups[g].contains(chunk * per_chunk - 1)) closed.groups[g].insert(k);
    }
  }
  for (size_t g = 0; g < config.groups().size(); ++g) {
    if (config.groups()[g].kind == GroupKind::kFull) continue;
    if (!first_full.has_value()) {
      closed.groups[g] = presence.groups[g];
      continue;
    }
    const int64_t per_chunk = config.groups()[*first_full].block_size.value() / hash;
    for (const int64_t k : presence.groups[g]) {
      const auto cover = closed.groups[*first_full].lower_bound(k);
      if (cover != closed.groups[*first_full].end() && *cover / per_chunk == k / per_chunk) closed.groups[g].insert(k);
    }
  }
  return closed;
}

}  // namespace tenure::kv::testing
