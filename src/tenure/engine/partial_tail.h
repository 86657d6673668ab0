// Which blocks of a prompt's partial tail are worth a save, besides the recurrent state that ends it. Pure.
//
// A later request resumes inside a scheduler block only at the prompt's state checkpoint, and only when every other
// group has what lies between its last whole save and there, an eagle group its proof too. Source: store_connector spec
// §6.1, vectors in §14.10.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/engine/step_plan.h"
#include "tenure/kv/cache_config.h"

namespace tenure::engine {

struct PartialTailQuery {
  Tokens num_prompt_tokens;
  Tokens completed;                              // Computed when the step ends.
  int64_t num_hashes = 0;                        // Known block hashes.
  bool publish = false;                          // From SaveStep: due whatever the states.
  std::span<const std::vector<BlockId>> blocks;  // One table a group.
  std::span<const BoundaryPut> states;           // Recurrent states that the engine hands over.
};
// Puts of the groups that are not states, group by group, ascending. Null blocks and groups whose tail is not computed
// yet are left out.
std::vector<BoundaryPut> PartialTailPuts(const kv::CacheConfig& config, const PartialTailQuery& query);

}  // namespace tenure::engine
