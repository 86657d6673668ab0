// The transfers that P no longer holds, and why: so that a late pull is told at once (pd_protocol spec §6 and §9.3).
//
// Bounded by age and by count; beyond the count the oldest is forgotten first. One thread at a time.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/time/time.h"
#include "tenure/base/clock.h"

namespace tenure::pd {

enum class HandoffEnd {
  kSent,     // Every decoder that needs it has it.
  kExpired,  // Nobody renewed it or pulled it in time.
  kAborted,  // The prefill ended without KV to hand over.
};

class RememberedEnds {
 public:
  // count_max at least 1.
  RememberedEnds(absl::Duration age_max, size_t count_max) : age_max_(age_max), count_max_(count_max) {}

  // Moves only: the keys are views of the list's texts.
  RememberedEnds(RememberedEnds&&) = default;
  RememberedEnds& operator=(RememberedEnds&&) = default;

  // `transfer_id` counts as ended now, also when an earlier end of it is known.
  void Remember(std::string_view transfer_id, HandoffEnd end, MonotonicTime now);
  void Forget(std::string_view transfer_id);
  // Answers from what is there; Prune decides about age.
  std::optional<HandoffEnd> Find(std::string_view transfer_id) const;
  // Forgets what ended at least `age_max` ago.
  void Prune(MonotonicTime now);
  size_t size() const { return order_.size(); }

 private:
  struct Ended {
    std::string transfer_id;
    HandoffEnd end;
    MonotonicTime at;
  };

  absl::Duration age_max_;
  size_t count_max_;
  std::list<Ended> order_;                                                  // Oldest first.
  std::unordered_map<std::string_view, std::list<Ended>::iterator> by_id_;  // The keys lie in the list.
};

}  // namespace tenure::pd
