// One prompt's lookup in a pool: finds the longest hit and leases exactly what loading it will read, on every rank.
//
// A hit is returned only when every key of its load set is leased; on a closed pool a chain of full attention counts as
// leased when its last chunk is, since ancestors stay. Exhaustive mode is stock vLLM's lookup (store_connector spec §4)
// with the selective lease of §13: probe every candidate, lease the hit, once more for a shorter hit, then a miss.
// Tail-first asks for few keys instead (kv/hit_search.h), takes at most kTailFirstRoundsMax leases, then one exhaustive
// lookup, then a miss. Nothing that goes wrong reaches the caller: it is a miss, counted, with one log line.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/units.h"
#include "tenure/connector/hash_source.h"
#include "tenure/connector/key_batch.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/hit_search.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"

namespace tenure::connector {

enum class LeaseMode : uint8_t {
  kSelective,  // What a load of the hit reads.
  kAll,        // Every candidate that is present, as stock vLLM does.
};

struct LookupOptions {
  kv::SearchMode mode = kv::SearchMode::kTailFirst;
  LeaseMode lease = LeaseMode::kSelective;
  absl::Duration lease_ttl = absl::Seconds(10);  // Above 0, at most store::Pool::kLeaseTtlMax.
};

enum class LookupOutcome : uint8_t {
  kHit,
  kShorterHit,  // A key was gone when it was leased, and a shorter hit was leased instead.
  kMiss,        // Nothing to load, by what the probes said.
  kMissLost,    // Keys went faster than they could be leased.
  kMissError,   // The pool or the hash source failed, or answered something else than asked.
};
std::string_view ToString(LookupOutcome outcome);

// What one lookup cost. Keys count every rank; a pair asked again in the exhaustive lookup that follows a failed
// tail-first one counts again.
struct LookupCost {
  int64_t keys_probed = 0;  // Asked to find the hit, also where that leases them (exhaustive with kAll).
  // Asked in the last lease round (on a closed pool one key leases a chain), or leased ahead of it; with kAll, leased.
  int64_t keys_leased = 0;
  int64_t keys_leased_total = 0;  // Over all lease rounds; what was asked ahead of them too.
  int64_t probe_calls = 0;
  int64_t lease_calls = 0;
  int64_t lease_rounds = 0;
  int64_t chain_restarts = 0;  // Holes found in chains that had been assumed whole.
};

struct LookupResult {
  kv::Hit hit;  // Length 0: a miss.
  LookupOutcome outcome = LookupOutcome::kMiss;
  absl::Status error;  // What failed, with kMissError; else ok. The caller decides how often to log it.
  LookupCost cost;
  // Hold the load set, and perhaps keys of a longer hit that shrank. Empty for a miss, except with LeaseMode::kAll.
  std::vector<store::Lease> leases;
};

// Sums over the lookups of one Lookup.
struct LookupCounters {
  int64_t lookups_total = 0;
  int64_t hits_total = 0;  // Shorter hits included.
  int64_t shorter_hits_total = 0;
  int64_t misses_total = 0;  // Of every kind.
  int64_t lost_misses_total = 0;
  int64_t error_misses_total = 0;
  int64_t exhaustive_fallbacks_total = 0;
  int64_t hit_tokens_total = 0;
  int64_t keys_probed_total = 0;
  int64_t keys_leased_total = 0;
};

// One thread at a time. `config` and `pool` outlive it; the pool outlives the leases too.
class Lookup {
 public:
  static constexpr int kTailFirstRoundsMax = 6;
  static constexpr int kExhaustiveRoundsMax = 2;
  // Keys of a chain in the first lease call on an independent pool; each later call asks for as many as all before it
  // have found, and a call with an absence is the last: after the first, no more is leased in vain than stands.
  static constexpr size_t kLeaseBatchKeys = 2048;
  static constexpr size_t kLeaseBatchKeysMax = 8192;  // A key costs a Mooncake master a third more in longer calls.
  // Where rounds are dear, a lone chain of full attention of so many keys is leased without a probe: the lease tells
  // which keys are there, and a call costs as much as 200 keys and more. Absent keys get no lease, so in vain is only
  // what lies behind the first chunk that a rank or a group lacks: less than a first batch may lease in vain.
  static constexpr int64_t kLeaseAheadKeysMax = 512;
  // Longer prompts are refused as errors.
  static constexpr int64_t kHashesMax = int64_t{1} << 24;

  // `namespaces[g]`: where group g's objects lie, one per rank that holds a part of it (kv/key_format.h). Refuses an
  // empty list, another number of groups than the config's, and a TTL out of range.
  static absl::StatusOr<Lookup> Create(const kv::CacheConfig& config, store::Pool& pool, GroupNamespaces namespaces,
                                       const LookupOptions& options);

  // `hashes` are those of the prompt's `num_tokens` tokens at the config's hash block size.
  LookupResult Find(const HashSource& hashes, Tokens num_tokens);

  const LookupCounters& counters() const { return counters_; }

 private:
  Lookup(const kv::CacheConfig& config, store::Pool& pool, GroupNamespaces namespaces, const LookupOptions& options);

  absl::Status FindInto(const HashSource& hashes, Tokens num_tokens, LookupResult& result);
  // Searches and leases up to `rounds_max` times; false when none of them came to an end.
  absl::StatusOr<bool> FindSelective(const HashSource& hashes, const kv::HitSearch::Query& query, int rounds_max,
                                     LookupResult& result);
  absl::Status FindLeaseAll(const HashSource& hashes, kv::HitSearch::Query query, LookupResult& result);
  absl::Status Search(const HashSource& hashes, LookupResult& result);
  // Before the first search, leases the longest hit that can be, if that is a short chain and nothing else. The search
  // knows the answers then, and LeaseHit what it need not lease again.
  absl::Status LeaseAhead(const HashSource& hashes, const kv::HitSearch::Query& query, LookupResult& result);
  // The hit that LeaseAhead asks for; length 0: none.
  kv::Hit HitAhead(const kv::HitSearch::Query& query) const;
  // True: every key of the hit's load set is leased. False: the search has learnt which are not.
  absl::StatusOr<bool> LeaseHit(const HashSource& hashes, const kv::Hit& hit, bool in_batches, LookupResult& result);
  // One call, of which the search learns what it needs.
  absl::StatusOr<bool> LeaseBatch(const HashSource& hashes, std::span<const kv::GroupHash> pairs, LookupResult& result);
  // One call; presence_ has the answers. True: all are leased.
  absl::StatusOr<bool> LeasePairs(const HashSource& hashes, std::span<const kv::GroupHash> pairs, LookupResult& result);
  // How many of `pairs`, at least one, make up to `keys_max` keys.
  size_t BatchSize(std::span<const kv::GroupHash> pairs, size_t keys_max) const;
  void AddLoads(kv::GroupIndex group, const kv::Hit& hit);
  void Account(const LookupResult& result);

  const kv::CacheConfig* config_;
  store::Pool* pool_;
  LookupOptions options_;
  KeyBatch batch_;
  std::unique_ptr<kv::HitSearch> search_;
  LookupCounters counters_;
  // Scratch, kept for its capacity.
  std::vector<kv::GroupHash> pairs_;
  std::vector<kv::Presence> presence_;
  std::vector<kv::GroupHash> ahead_;  // Ascending; leased before the search.
};

}  // namespace tenure::connector
