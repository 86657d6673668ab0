// How far a request is computed and how far it was ordered to be saved: when a step is worth a save order, and up to
// where. Values only. Source: store_connector spec §6.1, vectors in §14.10.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/engine/step_plan.h"
#include "tenure/kv/cache_config.h"

namespace tenure::engine {

struct SaveStep {
  Tokens length;              // Whole scheduler blocks to save.
  bool publish_tail = false;  // Fine mode: the first save that covers the whole prompt.
  TokenWindow tokens;         // What this step adds, when the tracker knows the tokens.
};

// One prefill of a request: from its first step, or its resumption, until it is preempted or ends.
class SaveTracker {
 public:
  // `length` tokens are computed when the step ends, of `prefill_end` that are prefilled. `token_ids`: the first
  // `length` tokens, or nothing without events.
  SaveTracker(Tokens length, Tokens prefill_end, std::vector<int32_t> token_ids)
      : length_(length), prefill_end_(prefill_end), token_ids_(std::move(token_ids)) {}

  // A later step computes `count` more; `token_ids` as above.
  void Extend(Tokens count, std::span<const int32_t> token_ids);
  // The engine went back to `computed` tokens, and computes the rest anew. `block`: the scheduler block size.
  void Rewind(Tokens computed, Tokens block);
  // What to save now, and remembers it as saved. `num_hashes` block hashes are known; without the one at its end a
  // block has no key yet.
  std::optional<SaveStep> Next(const kv::CacheConfig& config, Tokens num_prompt_tokens, int64_t num_hashes);

  Tokens length() const { return length_; }
  Tokens prefill_end() const { return prefill_end_; }
  Tokens saved() const { return saved_; }

 private:
  Tokens length_;
  Tokens prefill_end_;
  Tokens saved_;
  bool tail_published_ = false;
  std::vector<int32_t> token_ids_;
};

}  // namespace tenure::engine
