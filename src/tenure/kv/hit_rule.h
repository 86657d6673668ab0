// The hit rule: the longest prefix length at which every group has what a load needs. One pure function of what is
// known.
//
// vLLM's coordinator search, step for step and with its quirks (store_connector spec §1.5, §1.6), the rule that at
// least one token is left to compute, and the tail keys (§4 steps 6 and 7). It reads presence only where the algorithm
// does, windows and states from the top down; where it meets an unknown it stops and says what it wanted. The caller
// finds out and asks again from the start. So with everything known it is vLLM's answer, and with less known it is
// either the same answer or a question.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/presence.h"

namespace tenure::kv {

class Knowledge {
 public:
  virtual ~Knowledge() = default;
  // Whether the objects of `key` exist on every rank. Hash indices are below the query's num_hashes.
  virtual Presence Get(GroupHash key) const = 0;
  // How many leading chunks of a full-attention unit exist, counted up to `limit`; nothing when not known. The default
  // reads chunk by chunk and ends at the first that is absent.
  virtual std::optional<int64_t> ChainLength(const LookupUnit& unit, int64_t limit) const;
};

// Present only if it is in every group of the unit; absent as soon as one group lacks it.
Presence UnitPresence(const Knowledge& knowledge, const LookupUnit& unit, HashIndex hash);

// What the rule met and did not know.
struct Question {
  enum class Kind : uint8_t {
    kChain,     // Length of a full-attention chain, up to `chunk_end` chunks.
    kPartial,   // Fine mode: hash units inside the chunk that follows the chain; `hash` is the first unknown, from the
                // top.
    kBoundary,  // Window, state or chunked: `hash`, wanted for a hit of `boundary` tokens.
    kTail,  // Fine mode: which hash keys the chunk that ends a hit of `boundary` tokens; `hash` in every full group.
  };
  Kind kind = Kind::kChain;
  size_t unit = 0;  // Index into CacheConfig::units().
  HashIndex hash;
  int64_t chunk_end = 0;
  Tokens boundary;
};

struct BoundaryQuery {
  int64_t num_hashes = 0;
  Tokens length_max;        // The hit is at most this.
  bool apply_eagle = true;  // false: eagle groups need no proof (the search that makes load masks).
};
// The coordinator's search: a hit in tokens (0: a miss), or the question that stands in its way.
std::variant<Tokens, Question> FindBoundary(const CacheConfig& config, const BoundaryQuery& query,
                                            const Knowledge& knowledge);

// A whole lookup over a prompt of `num_tokens`: the search from num_tokens rounded down to the hit alignment, again
// from below when no token would be left to compute, and the tails. A group that loads nothing at the hit gets the hit
// as its tail.
std::variant<Hit, Question> FindHit(const CacheConfig& config, int64_t num_hashes, Tokens num_tokens,
                                    const Knowledge& knowledge);

}  // namespace tenure::kv
