#include "tenure/kv/random_case_testing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "tenure/base/check.h"

namespace tenure::kv::testing {
namespace {

template <typename T, size_t n>
T Pick(Random& random, const std::array<T, n>& from) {
  return from[random.Below(n)];
}

GroupSpec RandomGroup(Random& random, int64_t hash, int64_t per_chunk, bool fine) {
  GroupSpec spec;
  spec.block_size = Tokens(hash * per_chunk);
  const double dice = random.Fraction();
  if (dice < 0.45) return spec;
  if (dice < 0.75) {
    spec.kind = GroupKind::kWindow;
    // vLLM turns fine mode on only when windows have one hash a chunk; the rule is defined for others too.
    if (fine && random.Chance(0.8)) spec.block_size = Tokens(hash);
    spec.window = Tokens(random.Chance(0.05) ? 1 : random.Between(1, 4 * spec.block_size.value() + 2));
    return spec;
  }
  spec.kind = GroupKind::kState;
  return spec;
}

void FlagEagle(Random& random, CacheConfig::Options& options) {
  const double dice = random.Fraction();
  if (dice < 0.25) options.use_eagle = true;
  if (dice < 0.25 || dice > 0.45) return;
  options.use_eagle = random.Chance(0.5);
  for (GroupSpec& spec : options.groups) spec.eagle = random.Chance(0.5);
}

// Keys of a prefix of `end` hashes.
std::set<int64_t> Prefix(int64_t end, int64_t per_chunk) {
  std::set<int64_t> keys;
  for (int64_t k = per_chunk - 1; k < end; k += per_chunk) keys.insert(keys.end(), k);
  return keys;
}

void Thin(Random& random, std::set<int64_t>& keys, double keep) {
  std::set<int64_t> kept;
  for (const int64_t k : keys) {
    if (random.Chance(keep)) kept.insert(kept.end(), k);
  }
  keys.swap(kept);
}

// What a saver leaves in a group that is not a chain: the load set of some boundaries.
std::set<int64_t> SavedTails(Random& random, const CacheConfig& config, const GroupSpec& spec, int64_t end) {
  const int64_t hash = config.hash_block_size().value();
  const int64_t per_chunk = spec.block_size.value() / hash;
  const int64_t step = config.hit_alignment().value() / hash;
  std::set<int64_t> keys;
  const double density = Pick(random, std::array{0.1, 0.3, 0.6});
  for (int64_t boundary = step; boundary <= end; boundary += step) {
    if (!random.Chance(density)) continue;
    const int64_t chunks =
        spec.kind == GroupKind::kWindow ? CeilDiv(spec.window.value(), spec.block_size.value()) + 1 : 1;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t k = boundary - 1 - i * per_chunk;
      if (k >= 0) keys.insert(k);
    }
    if (spec.eagle && boundary + per_chunk <= end) keys.insert(boundary + per_chunk - 1);
  }
  return keys;
}

// In fine mode some chunks also have keys inside.
void AddInterior(Random& random, int64_t end, std::set<int64_t>& keys) {
  const double density = Pick(random, std::array{0.0, 0.1, 0.5});
  for (int64_t k = 0; k < end; ++k) {
    if (random.Chance(density)) keys.insert(k);
  }
}

}  // namespace

CacheConfig::Options RandomOptions(Random& random) {
  CacheConfig::Options options;
  const int64_t hash = Pick(random, std::array<int64_t, 4>{1, 4, 8, 16});
  options.hash_block_size = Tokens(hash);
  options.fine = random.Chance(0.35);
  const std::array<int64_t, 6> per_chunk = {1, 1, 2, 3, 4, 8};
  const int64_t count = random.Between(1, 5);
  while (static_cast<int64_t>(options.groups.size()) < count) {
    const bool repeat = !options.groups.empty() && random.Chance(0.25);
    options.groups.push_back(repeat ? options.groups[random.Below(options.groups.size())]
                                    : RandomGroup(random, hash, Pick(random, per_chunk), options.fine));
  }
  FlagEagle(random, options);
  int64_t scheduler = hash;
  for (const GroupSpec& spec : options.groups) scheduler = std::lcm(scheduler, spec.block_size.value());
  options.scheduler_block_size = Tokens(scheduler);
  const bool eagle = options.use_eagle || std::any_of(options.groups.begin(), options.groups.end(),
                                                      [](const GroupSpec& spec) { return spec.eagle; });
  if (!options.fine && !eagle && random.Chance(0.2)) {
    GroupSpec chunked;
    chunked.kind = GroupKind::kChunked;
    chunked.block_size = options.scheduler_block_size;
    chunked.chunk = Tokens(scheduler * random.Between(1, 4));
    options.groups.insert(options.groups.begin() + random.Between(0, count), chunked);
  }
  return options;
}

PresenceSet RandomPresence(Random& random, const CacheConfig& config, int64_t num_hashes) {
  PresenceSet presence;
  presence.num_hashes = num_hashes;
  const double style = random.Fraction();
  const double keep = Pick(random, std::array{0.5, 0.8, 0.9, 0.97});
  for (const GroupSpec& spec : config.groups()) {
    const int64_t per_chunk = spec.block_size / config.hash_block_size();
    const bool chain = spec.kind == GroupKind::kFull || spec.kind == GroupKind::kChunked;
    const int64_t end = style < 0.1 || random.Chance(0.4) ? num_hashes : random.Between(0, num_hashes);
    std::set<int64_t> keys = Prefix(end, per_chunk);
    if (style >= 0.4 && !chain) keys = SavedTails(random, config, spec, end);
    if (config.fine()) AddInterior(random, end, keys);
    if ((style >= 0.25 && style < 0.4) || style >= 0.7) Thin(random, keys, keep);
    presence.groups.push_back(std::move(keys));
  }
  return presence;
}

RandomCase MakeRandomCase(Random& random) {
  RandomCase result;
  result.options = RandomOptions(random);
  const CacheConfig config = MustCreate(result.options);
  const int64_t hash = config.hash_block_size().value();
  const int64_t num_hashes = random.Between(1, random.Chance(0.001) ? 4096 : 64);
  result.presence = RandomPresence(random, config, num_hashes);
  result.num_tokens = num_hashes * hash + (random.Chance(0.3) ? 0 : random.Between(0, hash - 1));
  if (random.Chance(0.1)) result.num_tokens = random.Between(1, num_hashes * hash);
  return result;
}

CacheConfig MustCreate(CacheConfig::Options options) {
  absl::StatusOr<CacheConfig> config = CacheConfig::Create(std::move(options));
  TENURE_CHECK(config.ok());
  return *std::move(config);
}

bool HasHole(const CacheConfig& config, const PresenceSet& presence) {
  for (size_t g = 0; g < config.groups().size(); ++g) {
    const GroupSpec& spec = config.groups()[g];
    if (spec.kind != GroupKind::kFull && spec.kind != GroupKind::kChunked) continue;
    const int64_t per_chunk = spec.block_size / config.hash_block_size();
    bool missing = false;
    for (int64_t k = per_chunk - 1; k < presence.num_hashes; k += per_chunk) {
      if (missing && presence.groups[g].contains(k)) return true;
      missing = missing || !presence.groups[g].contains(k);
    }
  }
  return false;
}

void CaseCounts::Count(const CacheConfig& config, const PresenceSet& presence, int64_t hit, int64_t hit_max) {
  ++cases_;
  holes_ += HasHole(config, presence) ? 1 : 0;
  eagles_ += config.any_eagle() ? 1 : 0;
  partial_hits_ += hit > 0 && hit < hit_max ? 1 : 0;
}

bool CaseCounts::Enough() const { return cases_ > 0 && std::min({holes_, eagles_, partial_hits_}) * 20 >= cases_; }

std::string CaseCounts::ToString() const {
  return fmt::format("{} cases: {} with a hole, {} with an eagle group, {} with a partial hit", cases_, holes_, eagles_,
                     partial_hits_);
}

std::string Describe(const RandomCase& random_case) {
  const CacheConfig::Options& options = random_case.options;
  std::string text = fmt::format("h {} B {} fine {} use_eagle {} hashes {} tokens {}", options.hash_block_size.value(),
                                 options.scheduler_block_size.value(), options.fine, options.use_eagle,
                                 random_case.presence.num_hashes, random_case.num_tokens);
  for (size_t g = 0; g < options.groups.size(); ++g) {
    const GroupSpec& spec = options.groups[g];
    text += fmt::format("; {}: {} {} window {} chunk {} eagle {} present {}", g, ToString(spec.kind),
                        spec.block_size.value(), spec.window.value(), spec.chunk.value(), spec.eagle,
                        random_case.presence.groups[g]);
  }
  return text;
}

}  // namespace tenure::kv::testing
