// The write plans of the decode workers that pull from this one, made once for each layout (pd_protocol spec §5).
//
// A plan costs far more than a pull, and every pull carries the whole layout: what came last with the same layout is
// kept, errors too, up to a count. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/write_plan.h"

namespace tenure::pd {

// One decode worker, as its pulls describe it.
struct PeerLayout {
  Pull pull;                                 // Without requests.
  absl::StatusOr<int64_t> consumers_needed;  // An error: the two do not pull from each other.
  absl::StatusOr<WritePlan> plan;            // An error: nothing can be written; releasing may go on.
  HandoffConsumer consumer;
};

class PlanCache {
 public:
  // layouts_max at least 1.
  PlanCache(KvLayout prefill, KvTraits traits, size_t layouts_max)
      : prefill_(std::move(prefill)), traits_(std::move(traits)), layouts_max_(layouts_max) {}

  // `pull` without its requests and what else changes from pull to pull. The result stays good when it is dropped here.
  std::shared_ptr<const PeerLayout> Find(const Pull& pull);

  size_t size() const { return layouts_.size(); }

 private:
  KvLayout prefill_;
  KvTraits traits_;
  size_t layouts_max_;
  std::list<std::shared_ptr<const PeerLayout>> layouts_;  // The last used first.
};

}  // namespace tenure::pd
