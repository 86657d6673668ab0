// Finds the longest hit by asking for keys in batches: the one stepper behind every lookup. No I/O; one thread at a
// time.
//
//   search.Start(query);
//   while (!(wanted = search.Step()).empty()) search.Learn(answers to wanted);
//   search.hit();
//
// Exhaustive: one batch with every candidate, as stock vLLM asks (store_connector spec §4). Tail-first: the longest
// candidate first; then chains of full attention by sections, 32 probes a round; then boundaries from the longest down,
// in batches that double. Both evaluate the same rule (hit_rule.h), so they agree by construction on a closed pool, and
// on any pool as long as no full-attention chain has a hole below its found end.
//
// On an independent pool a chain's inner chunks are assumed from a later one; the lease is what makes sure of them. A
// hit is handed out only if it does not rest on an assumed chunk that no lease will touch: eagle proofs are asked for,
// and where vLLM's answer depends on the chain's true length in another way, the chain is asked for whole (restarts()).
// An absence that the lease finds goes to LearnKey, and Step is asked again.
//
// Cost, tail-first, per group and rank, with n chunks of a chain and d chunks (fine mode: hash units) from the chain's
// end to the hit; once for each search: a hole found below an assumed end (restarts()) starts another.
//
//   full    33 * ceil(log33 n) + 2 keys, the eagle proof (A / block size), in fine mode the hash units of three chunks
//   state   2 * d + 64 keys
//   window  the load set + 64 + 2 * d * (keys of one boundary that its neighbour does not share): each boundary above
//           the hit has to be refuted, so no bound without d can hold
//   rounds  ceil(log33 n) + ceil(log2(d + 1)) + 3, one more a full-attention unit in fine mode, and one more per
//           16,384 boundaries
//
// Where a round costs as much as hundreds of keys (RoundCost::kDear), the first batch has the sections too, as many as
// end a chain of 65,536 chunks in the second round (s = ceil(sqrt n), 32 to 256), and boundaries begin with 64. Up to
// 65,536 chunks that is 2 * s + 4 keys for full attention, 64 times the unshared keys for a window's 64, and 2 rounds
// for ceil(log33 n).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/presence.h"

namespace tenure::kv {

enum class SearchMode : uint8_t { kExhaustive, kTailFirst };

// What a present chunk of full attention says of the chunks before it.
enum class ChainTrust : uint8_t {
  kClosed,       // They are present: the pool keeps ancestors.
  kIndependent,  // Nothing.
};

enum class RoundCost : uint8_t { kCheap, kDear };

class HitSearch {
 public:
  // Boundaries in one batch; probes of a chain in one round.
  static constexpr int64_t kBatchBoundariesMax = 16'384;
  static constexpr int64_t kSectionProbes = 32;
  static constexpr int64_t kDearSectionProbesMax = 256;
  static constexpr int64_t kDearBoundaries = 64;

  struct Query {
    SearchMode mode = SearchMode::kTailFirst;
    ChainTrust trust = ChainTrust::kIndependent;
    int64_t num_hashes = 0;
    Tokens num_tokens;
    RoundCost round_cost = RoundCost::kCheap;
  };

  // `config` outlives this. Memory grows to one byte per hash and group of the longest prompt seen and is then reused.
  explicit HitSearch(const CacheConfig& config);
  ~HitSearch();
  HitSearch(const HitSearch&) = delete;
  HitSearch& operator=(const HitSearch&) = delete;

  // Forgets everything and begins anew. Precondition: query.num_hashes at most 2^32.
  void Start(const Query& query);

  // The pairs to ask for next: ascending, distinct, none that was asked since Start. Empty: hit() is the answer. Valid
  // until the next call.
  std::span<const GroupHash> Step();
  // One answer for each of Step's pairs, in order: kPresent if the object exists on every rank, else kAbsent.
  void Learn(std::span<const Presence> answers);
  // Something found out on the way (by a lease); later knowledge replaces earlier.
  void LearnKey(GroupHash key, Presence presence);

  // Precondition: Step returned no pair.
  const Hit& hit() const;
  // Times that a chain was found to have a hole below its assumed end, or had to be asked for chunk by chunk.
  int64_t restarts() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tenure::kv
