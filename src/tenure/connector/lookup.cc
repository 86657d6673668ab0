#include "tenure/connector/lookup.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/kv/masks.h"

namespace tenure::connector {
namespace {

// Whether every one of `loads` was answered present; `pairs` ascend.
bool IsPresent(std::span<const kv::GroupHash> pairs, std::span<const kv::Presence> presence,
               std::span<const kv::GroupHash> loads) {
  return std::all_of(loads.begin(), loads.end(), [pairs, presence](const kv::GroupHash& load) {
    const auto found = std::lower_bound(pairs.begin(), pairs.end(), load);
    return found != pairs.end() && *found == load &&
           presence[static_cast<size_t>(found - pairs.begin())] == kv::Presence::kPresent;
  });
}

}  // namespace

std::string_view ToString(LookupOutcome outcome) {
  switch (outcome) {
    case LookupOutcome::kHit:
      return "hit";
    case LookupOutcome::kShorterHit:
      return "shorter hit";
    case LookupOutcome::kMiss:
      return "miss";
    case LookupOutcome::kMissLost:
      return "miss by lost keys";
    case LookupOutcome::kMissError:
      return "miss by error";
  }
  TENURE_CHECK(false);
}

absl::StatusOr<Lookup> Lookup::Create(const kv::CacheConfig& config, store::Pool& pool, GroupNamespaces namespaces,
                                      const LookupOptions& options) {
  if (namespaces.size() != config.groups().size()) {
    return InvalidArgument("namespaces has {} groups; the cache has {}: give one list a group", namespaces.size(),
                           config.groups().size());
  }
  for (size_t group = 0; group < namespaces.size(); ++group) {
    if (namespaces[group].empty()) {
      return InvalidArgument("namespaces[{}] is empty; give one namespace a rank", group);
    }
  }
  if (options.lease_ttl <= absl::ZeroDuration() || options.lease_ttl > store::Pool::kLeaseTtlMax) {
    return InvalidArgument("lease_ttl is {} s; use more than 0 and at most {} s",
                           absl::ToDoubleSeconds(options.lease_ttl), absl::ToDoubleSeconds(store::Pool::kLeaseTtlMax));
  }
  return Lookup(config, pool, std::move(namespaces), options);
}

Lookup::Lookup(const kv::CacheConfig& config, store::Pool& pool, GroupNamespaces namespaces,
               const LookupOptions& options)
    : config_(&config),
      pool_(&pool),
      options_(options),
      batch_(std::move(namespaces)),
      search_(std::make_unique<kv::HitSearch>(config)) {}

LookupResult Lookup::Find(const HashSource& hashes, Tokens num_tokens) {
  LookupResult result;
  absl::Status status;
  // Pools and hash sources of other languages may throw; the engine's scheduler must not die of it.
  try {
    status = FindInto(hashes, num_tokens, result);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) {
    result.outcome = LookupOutcome::kMissError;
    result.error = std::move(status);
  }
  if (result.outcome != LookupOutcome::kHit && result.outcome != LookupOutcome::kShorterHit) {
    result.hit = kv::Hit();
    if (options_.lease == LeaseMode::kSelective) result.leases.clear();
  }
  Account(result);
  return result;
}

absl::Status Lookup::FindInto(const HashSource& hashes, Tokens num_tokens, LookupResult& result) {
  kv::HitSearch::Query query;
  query.mode = options_.mode;
  query.trust = pool_->traits().closed ? kv::ChainTrust::kClosed : kv::ChainTrust::kIndependent;
  query.num_hashes = hashes.size();
  query.num_tokens = num_tokens;
  query.round_cost = pool_->traits().dear_rounds ? kv::RoundCost::kDear : kv::RoundCost::kCheap;
  if (query.num_hashes < 0 || query.num_hashes > kHashesMax) {
    return InvalidArgument("the prompt has {} block hashes; use 0 to {}", query.num_hashes, kHashesMax);
  }
  if (options_.lease == LeaseMode::kAll) return FindLeaseAll(hashes, query, result);
  const bool exhaustive = query.mode == kv::SearchMode::kExhaustive;
  const int rounds_max = exhaustive ? kExhaustiveRoundsMax : kTailFirstRoundsMax;
  TENURE_ASSIGN_OR_RETURN(const bool ended, FindSelective(hashes, query, rounds_max, result));
  if (ended || exhaustive) return absl::OkStatus();
  ++counters_.exhaustive_fallbacks_total;
  query.mode = kv::SearchMode::kExhaustive;
  return FindSelective(hashes, query, kExhaustiveRoundsMax, result).status();
}

absl::StatusOr<bool> Lookup::FindSelective(const HashSource& hashes, const kv::HitSearch::Query& query, int rounds_max,
                                           LookupResult& result) {
  const bool in_batches = query.mode == kv::SearchMode::kTailFirst && query.trust == kv::ChainTrust::kIndependent;
  search_->Start(query);
  TENURE_RETURN_IF_ERROR(LeaseAhead(hashes, query, result));
  for (int round = 0; round < rounds_max; ++round) {
    TENURE_RETURN_IF_ERROR(Search(hashes, result));
    if (query.mode == kv::SearchMode::kTailFirst) result.cost.chain_restarts = search_->restarts();
    const kv::Hit& hit = search_->hit();
    const bool lost = result.cost.lease_rounds > 0;
    if (hit.length.value() == 0) {
      result.outcome = lost ? LookupOutcome::kMissLost : LookupOutcome::kMiss;
      return true;
    }
    TENURE_ASSIGN_OR_RETURN(const bool complete, LeaseHit(hashes, hit, in_batches, result));
    if (!complete) continue;
    result.hit = hit;
    result.outcome = lost ? LookupOutcome::kShorterHit : LookupOutcome::kHit;
    return true;
  }
  result.outcome = LookupOutcome::kMissLost;
  return false;
}

absl::Status Lookup::Search(const HashSource& hashes, LookupResult& result) {
  for (auto wanted = search_->Step(); !wanted.empty(); wanted = search_->Step()) {
    TENURE_RETURN_IF_ERROR(batch_.Build(wanted, hashes));
    ++result.cost.probe_calls;
    result.cost.keys_probed += static_cast<int64_t>(batch_.keys().size());
    presence_.resize(wanted.size());
    TENURE_RETURN_IF_ERROR(batch_.Probe(*pool_, presence_));
    search_->Learn(presence_);
  }
  return absl::OkStatus();
}

kv::Hit Lookup::HitAhead(const kv::HitSearch::Query& query) const {
  const bool asks = query.mode == kv::SearchMode::kTailFirst && query.trust == kv::ChainTrust::kIndependent &&
                    query.round_cost == kv::RoundCost::kDear;
  // Eagle proofs and hits inside a chunk are not load sets. A window, a state or another chain that is not there would
  // leave a chain leased that no load reads.
  const bool is_chain = config_->units().size() == 1 && config_->units()[0].spec.kind == kv::GroupKind::kFull;
  if (!asks || !is_chain || config_->fine() || config_->any_eagle() || query.num_tokens.value() <= 0) return {};
  const Tokens hashed = config_->hash_block_size() * query.num_hashes;
  const Tokens longest = RoundDown(std::min(query.num_tokens, hashed), config_->hit_alignment());
  if (longest == query.num_tokens) return {};  // The hit would leave no token to compute.
  int64_t keys = 0;
  for (size_t group = 0; group < config_->groups().size(); ++group) {
    const kv::GroupIndex index(static_cast<int32_t>(group));
    const kv::ChunkRange range = kv::LoadRange(*config_, index, longest);
    keys += (range.end - range.first) * static_cast<int64_t>(batch_.RanksOf(index));
  }
  if (keys > kLeaseAheadKeysMax) return {};
  return {longest, std::vector<Tokens>(config_->groups().size(), longest)};
}

absl::Status Lookup::LeaseAhead(const HashSource& hashes, const kv::HitSearch::Query& query, LookupResult& result) {
  ahead_.clear();
  const kv::Hit hit = HitAhead(query);
  if (hit.length.value() == 0) return absl::OkStatus();
  pairs_.clear();
  for (size_t group = 0; group < config_->groups().size(); ++group) {
    AddLoads(kv::GroupIndex(static_cast<int32_t>(group)), hit);
  }
  TENURE_RETURN_IF_ERROR(LeasePairs(hashes, pairs_, result).status());
  for (size_t i = 0; i < pairs_.size(); ++i) {
    search_->LearnKey(pairs_[i], presence_[i]);
    if (presence_[i] == kv::Presence::kPresent) ahead_.push_back(pairs_[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Lookup::LeaseHit(const HashSource& hashes, const kv::Hit& hit, bool in_batches,
                                      LookupResult& result) {
  const auto groups = config_->groups();
  pairs_.clear();
  size_t unordered = 0;
  // In batches: what is short and lost first goes first, and chains come last, so that they can stop early.
  for (const bool full : {false, true}) {
    for (size_t group = 0; group < groups.size(); ++group) {
      if ((groups[group].kind == kv::GroupKind::kFull) == full)
        AddLoads(kv::GroupIndex(static_cast<int32_t>(group)), hit);
    }
    if (!full) unordered = pairs_.size();
  }
  ++result.cost.lease_rounds;
  result.cost.keys_leased = 0;
  if (!ahead_.empty()) {
    std::erase_if(pairs_, [this, &result](kv::GroupHash pair) {
      const bool leased = std::binary_search(ahead_.begin(), ahead_.end(), pair);
      if (leased) result.cost.keys_leased += static_cast<int64_t>(batch_.RanksOf(pair.group));
      return leased;
    });
    unordered = 0;  // Only a chain is leased ahead.
  }
  const std::span<const kv::GroupHash> pairs(pairs_);
  if (!in_batches) return LeaseBatch(hashes, pairs, result);
  for (size_t begin = 0, end = unordered; begin < pairs.size(); begin = end) {
    const auto found = static_cast<size_t>(result.cost.keys_leased);
    end += BatchSize(pairs.subspan(end), std::clamp(found, kLeaseBatchKeys, kLeaseBatchKeysMax));
    TENURE_ASSIGN_OR_RETURN(const bool complete, LeaseBatch(hashes, pairs.subspan(begin, end - begin), result));
    if (!complete) return false;
  }
  return true;
}

absl::StatusOr<bool> Lookup::LeaseBatch(const HashSource& hashes, std::span<const kv::GroupHash> pairs,
                                        LookupResult& result) {
  TENURE_ASSIGN_OR_RETURN(const bool complete, LeasePairs(hashes, pairs, result));
  // Where a batch ends is worth knowing even if the next one fails: the chain up to there is leased.
  const size_t first = complete ? pairs.size() - 1 : 0;
  for (size_t i = first; i < pairs.size(); ++i) search_->LearnKey(pairs[i], presence_[i]);
  return complete;
}

absl::StatusOr<bool> Lookup::LeasePairs(const HashSource& hashes, std::span<const kv::GroupHash> pairs,
                                        LookupResult& result) {
  TENURE_RETURN_IF_ERROR(batch_.Build(pairs, hashes));
  ++result.cost.lease_calls;
  result.cost.keys_leased += static_cast<int64_t>(batch_.keys().size());
  result.cost.keys_leased_total += static_cast<int64_t>(batch_.keys().size());
  presence_.resize(pairs.size());
  TENURE_ASSIGN_OR_RETURN(store::Lease lease, batch_.AcquireLease(*pool_, options_.lease_ttl, presence_));
  result.leases.push_back(std::move(lease));
  return std::find(presence_.begin(), presence_.end(), kv::Presence::kAbsent) == presence_.end();
}

size_t Lookup::BatchSize(std::span<const kv::GroupHash> pairs, size_t keys_max) const {
  size_t keys = 0;
  size_t count = 0;
  for (; count < pairs.size() && (count == 0 || keys < keys_max); ++count) keys += batch_.RanksOf(pairs[count].group);
  return count;
}

void Lookup::AddLoads(kv::GroupIndex group, const kv::Hit& hit) {
  const kv::LookupUnit& unit = config_->UnitOf(group);
  const kv::ChunkRange range = kv::LoadRange(*config_, group, hit.length);
  if (range.first >= range.end) return;
  int64_t chunk = range.first;
  // A closed pool keeps the ancestors of what is leased.
  if (unit.spec.kind == kv::GroupKind::kFull && pool_->traits().closed) chunk = range.end - 1;
  for (; chunk < range.end - 1; ++chunk)
    pairs_.push_back({group, kv::HashIndex((chunk + 1) * unit.hashes_per_chunk - 1)});
  const Tokens tail = hit.tails[static_cast<size_t>(group.value())];
  pairs_.push_back({group, kv::HashIndex(tail / config_->hash_block_size() - 1)});
}

absl::Status Lookup::FindLeaseAll(const HashSource& hashes, kv::HitSearch::Query query, LookupResult& result) {
  kv::Hit found;
  if (query.mode == kv::SearchMode::kTailFirst) {
    search_->Start(query);
    TENURE_RETURN_IF_ERROR(Search(hashes, result));
    found = search_->hit();
  }
  const bool probed = query.mode == kv::SearchMode::kTailFirst;
  query.mode = kv::SearchMode::kExhaustive;
  search_->Start(query);
  const std::span<const kv::GroupHash> pairs = search_->Step();
  if (pairs.empty()) return absl::OkStatus();
  TENURE_RETURN_IF_ERROR(batch_.Build(pairs, hashes));
  ++result.cost.lease_calls;
  ++result.cost.lease_rounds;
  if (!probed) result.cost.keys_probed += static_cast<int64_t>(batch_.keys().size());
  presence_.resize(pairs.size());
  TENURE_ASSIGN_OR_RETURN(store::Lease lease, batch_.AcquireLease(*pool_, options_.lease_ttl, presence_));
  result.cost.keys_leased = result.cost.keys_leased_total = static_cast<int64_t>(lease.size());
  result.leases.push_back(std::move(lease));
  const bool stands = found.length.value() > 0 && IsPresent(pairs, presence_, kv::LoadSet(*config_, found));
  search_->Learn(presence_);
  search_->Step();
  result.hit = stands ? found : search_->hit();
  if (result.hit.length.value() == 0) {
    result.outcome = found.length.value() > 0 ? LookupOutcome::kMissLost : LookupOutcome::kMiss;
  } else {
    result.outcome = result.hit.length < found.length ? LookupOutcome::kShorterHit : LookupOutcome::kHit;
  }
  return absl::OkStatus();
}

void Lookup::Account(const LookupResult& result) {
  ++counters_.lookups_total;
  counters_.hits_total += result.hit.length.value() > 0;
  counters_.shorter_hits_total += result.outcome == LookupOutcome::kShorterHit;
  counters_.misses_total += result.hit.length.value() == 0;
  counters_.lost_misses_total += result.outcome == LookupOutcome::kMissLost;
  counters_.error_misses_total += result.outcome == LookupOutcome::kMissError;
  counters_.hit_tokens_total += result.hit.length.value();
  counters_.keys_probed_total += result.cost.keys_probed;
  counters_.keys_leased_total += result.cost.keys_leased_total;
}

}  // namespace tenure::connector
