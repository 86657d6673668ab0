// Which (group, hash) pairs a lookup may ask for; every other pair counts as absent. Pure values.
//
// Coarse: the chunks that the lookup mask keeps. Fine: every hash unit of every group. Source: store_connector spec
// §4.1, §4.2.
#pragma once

#include <cstdint>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/group_spec.h"

namespace tenure::kv {

class LookupCandidates {
 public:
  // A prompt of `num_tokens` with `num_hashes` block hashes; either may be 0 or below (no candidates). `config`
  // outlives this.
  LookupCandidates(const CacheConfig& config, int64_t num_hashes, Tokens num_tokens);

  int64_t num_hashes() const { return num_hashes_; }
  Tokens num_tokens() const { return num_tokens_; }
  // num_tokens rounded down to the hit alignment: the longest conceivable hit.
  Tokens token_length() const { return token_length_; }
  // Pairs with a hash index of this or above are no candidates, whatever the group.
  int64_t hash_end() const { return hash_end_; }

  bool Has(GroupHash key) const;
  // All of them, ascending. `out` keeps its capacity.
  void AppendAll(std::vector<GroupHash>& out) const;

 private:
  const CacheConfig* config_;
  int64_t num_hashes_ = 0;
  Tokens num_tokens_;
  Tokens token_length_;
  int64_t hash_end_ = 0;
};

}  // namespace tenure::kv
