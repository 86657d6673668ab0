#include "tenure/pd/plan_cache.h"

#include <utility>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

// A retry comes over another connection and, after a restart, from another port: the ranks say who it is. Only D with
// pipeline ranks that it does not tell needs its address to be told apart.
HandoffConsumer ConsumerOf(const Pull& pull) {
  if (pull.remote_pp_rank || pull.remote_pp_size == 1) {
    return {"", pull.remote_tp_rank, pull.remote_pp_rank.value_or(0)};
  }
  return {fmt::format("{}:{}", pull.remote_hostname, pull.remote_port), pull.remote_tp_rank, 0};
}

absl::StatusOr<int64_t> CheckedConsumersNeeded(const WorkerRank& prefill, const Pull& pull) {
  WorkerRank decode;
  decode.tp_size = pull.remote_tp_size;
  decode.tp_rank = pull.remote_tp_rank;
  decode.pp_size = pull.remote_pp_size;
  decode.pp_rank = pull.remote_pp_rank.value_or(pull.remote_pp_size == prefill.pp_size ? prefill.pp_rank : 0);
  TENURE_RETURN_IF_ERROR(CheckPaired(prefill, decode));
  return ConsumersNeeded(prefill, pull.remote_tp_size, pull.remote_pp_size);
}

}  // namespace

std::shared_ptr<const PeerLayout> PlanCache::Find(const Pull& pull) {
  for (auto layout = layouts_.begin(); layout != layouts_.end(); ++layout) {
    if ((*layout)->pull != pull) continue;
    layouts_.splice(layouts_.begin(), layouts_, layout);
    return layouts_.front();
  }
  layouts_.push_front(
      std::make_shared<const PeerLayout>(PeerLayout{pull, CheckedConsumersNeeded(prefill_.rank, pull),
                                                    WritePlan::Create(prefill_, traits_, pull), ConsumerOf(pull)}));
  if (layouts_.size() > layouts_max_) layouts_.pop_back();
  return layouts_.front();
}

}  // namespace tenure::pd
