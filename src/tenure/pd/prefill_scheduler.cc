#include "tenure/pd/prefill_scheduler.h"

#include "tenure/base/status.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {

absl::Status PrefillScheduler::Scheduled(std::string_view request_id, std::string_view transfer_id) {
  if (requests_.find(request_id) != requests_.end()) return absl::OkStatus();  // Again, after a preemption.
  if (requests_.size() >= kRequestsMax) {
    return ResourceExhausted("{} requests await their hand-over; the next ones run without one", requests_.size());
  }
  Request& request = requests_[std::string(request_id)];
  if (transfer_id.empty()) {
    return InvalidArgument("request {}: kv_transfer_params has no transfer_id; its KV is not handed over", request_id);
  }
  TENURE_RETURN_IF_ERROR(CheckText("request id", request_id));
  TENURE_RETURN_IF_ERROR(CheckText("kv_transfer_params: transfer_id", transfer_id));
  const auto [owner, is_first] = owner_of_.try_emplace(std::string(transfer_id), request_id);
  if (!is_first) {
    return InvalidArgument(
        "request {}: transfer_id {} belongs to request {}; its KV is not handed over: give every prompt and every one "
        "of n > 1 completions a transfer_id of its own",
        request_id, transfer_id, owner->second);
  }
  request.transfer_id = transfer_id;
  orders_.announced.push_back({std::string(request_id), std::string(transfer_id)});
  return absl::OkStatus();
}

bool PrefillScheduler::Finished(std::string_view request_id, std::string_view transfer_id, End end, Blocks blocks) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) {
    // Never scheduled. D may wait already; unless the id is another request's, it is told.
    if (!transfer_id.empty() && owner_of_.find(transfer_id) == owner_of_.end() &&
        CheckText("transfer id", transfer_id).ok() && CheckText("request id", request_id).ok()) {
      orders_.aborted.push_back({std::string(request_id), std::string(transfer_id)});
    }
    return false;
  }
  Request& request = found->second;
  if (request.kept) return true;
  if (request.transfer_id.empty()) {
    requests_.erase(found);
    return false;
  }
  if (end == End::kWhole) {
    orders_.finished.push_back({std::string(request_id), request.transfer_id, groups_.Clip(std::move(blocks))});
    request.kept = true;
    ++num_kept_;
    return true;
  }
  // An announcement of this step must not outlive the abort, which the workers carry out first.
  std::erase_if(orders_.announced, [&](const TransferOrder& order) { return order.request_id == request_id; });
  orders_.aborted.push_back({std::string(request_id), request.transfer_id});
  Forget(found);
  return false;
}

bool PrefillScheduler::Sent(std::string_view request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || !found->second.kept) return false;
  --num_kept_;
  Forget(found);
  return true;
}

void PrefillScheduler::Forget(std::map<std::string, Request, std::less<>>::iterator request) {
  owner_of_.erase(request->second.transfer_id);
  requests_.erase(request);
}

}  // namespace tenure::pd
