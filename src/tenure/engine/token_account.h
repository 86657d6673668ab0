// Where the tokens of every prefill came from, so that prompt = local + external + recomputed + computed. Values only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenure/base/units.h"

namespace tenure::engine {

// Sums over the prefills that were scheduled; one that was resumed after a preemption counts again, all its tokens.
struct TokenTotals {
  int64_t prompt = 0;
  int64_t local = 0;       // The engine had them.
  int64_t external = 0;    // Loaded from the pool.
  int64_t recomputed = 0;  // A load was to bring them and failed.
  int64_t computed = 0;    // Nobody had them.
};

// The load before a prefill; a hit of 0 for none.
struct LoadOutcome {
  Tokens local;
  Tokens hit;
  bool failed = false;
};

// Adds a prefill of `prompt` tokens that begins with `present` of them. After a failed load `present` may end anywhere:
// what lies past `local` was loaded well, what is missing up to the hit is computed a second time.
inline void AddPrefill(Tokens prompt, Tokens present, const LoadOutcome& load, TokenTotals& totals) {
  present = std::min(present, prompt);
  const Tokens local = load.hit > Tokens() ? std::min(load.local, present) : present;
  const Tokens recomputed = load.failed ? std::max(std::min(load.hit, prompt) - present, Tokens()) : Tokens();
  totals.prompt += prompt.value();
  totals.local += local.value();
  totals.external += (present - local).value();
  totals.recomputed += recomputed.value();
  totals.computed += (prompt - present - recomputed).value();
}

}  // namespace tenure::engine
