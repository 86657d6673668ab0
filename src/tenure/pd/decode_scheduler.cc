#include "tenure/pd/decode_scheduler.h"

#include <algorithm>

#include "tenure/base/status.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

absl::Status CheckRemote(std::string_view request_id, const RemotePrefill& remote) {
  std::string missing;
  const auto require = [&](const std::string& value, std::string_view name) {
    if (value.empty()) missing += missing.empty() ? std::string(name) : ", " + std::string(name);
  };
  require(remote.transfer_id, "transfer_id");
  require(remote.engine_id, "remote_engine_id");
  require(remote.bootstrap_address, "remote_bootstrap_addr");
  if (!missing.empty()) {
    return InvalidArgument("request {}: kv_transfer_params has no {}; its prompt is computed here", request_id,
                           missing);
  }
  TENURE_RETURN_IF_ERROR(CheckText("request id", request_id));
  TENURE_RETURN_IF_ERROR(CheckText("kv_transfer_params: transfer_id", remote.transfer_id));
  TENURE_RETURN_IF_ERROR(CheckText("kv_transfer_params: remote_engine_id", remote.engine_id));
  return CheckText("kv_transfer_params: remote_bootstrap_addr", remote.bootstrap_address);
}

absl::Duration Remaining(MonotonicTime deadline, MonotonicTime now) {
  return std::max(deadline - now, absl::ZeroDuration());
}

}  // namespace

absl::Status DecodeScheduler::Arrived(std::string_view request_id, const RemotePrefill& remote, MonotonicTime now) {
  TENURE_RETURN_IF_ERROR(CheckRemote(request_id, remote));
  if (requests_.size() >= kRequestsMax) {
    return ResourceExhausted("{} requests await their prefill; the prompt of request {} is computed here",
                             requests_.size(), request_id);
  }
  if (requests_.find(request_id) != requests_.end()) {
    return InvalidArgument(
        "request {}: a pull for an earlier request of this name is under way; its prompt is computed here", request_id);
  }
  if (!request_of_.try_emplace(remote.transfer_id, request_id).second) {
    return InvalidArgument(
        "request {}: transfer_id {} belongs to another request; its prompt is computed here: give every prompt and "
        "every "
        "one of n > 1 completions a transfer_id of its own",
        request_id, remote.transfer_id);
  }
  requests_[std::string(request_id)] = {remote, now + options_.request_timeout};
  to_track_.emplace_back(request_id);
  return absl::OkStatus();
}

Tokens DecodeScheduler::Offered(std::string_view request_id, Tokens num_prompt_tokens, Tokens computed,
                                MonotonicTime now) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second.pulling || found->second.deadline <= now) return Tokens(0);
  const int64_t prompt = num_prompt_tokens.value();
  const int64_t wanted = options_.keeps_last_token && prompt > 1 ? prompt - 1 : prompt;
  return Tokens(std::max<int64_t>(wanted - computed.value(), 0));
}

void DecodeScheduler::Allocated(std::string_view request_id, Blocks blocks, Tokens num_external) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second.pulling) return;
  if (num_external.value() == 0) return Release(found);
  Pull(found->first, found->second, groups_.Clip(std::move(blocks)));
  found->second.pulling = true;  // Renewed until it is settled: it may be queued at P.
}

void DecodeScheduler::Finished(std::string_view request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second.pulling) return;
  Release(found);
}

std::string DecodeScheduler::Gone(std::string_view engine_id, std::string_view transfer_id) {
  const auto holder = request_of_.find(transfer_id);
  if (holder == request_of_.end()) return {};
  const auto found = requests_.find(holder->second);
  if (found->second.pulling || found->second.remote.engine_id != engine_id) return {};
  std::string request_id = found->first;
  Drop(found);
  return request_id;
}

bool DecodeScheduler::Settled(std::string_view request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || !found->second.pulling) return false;
  Drop(found);
  return true;
}

StepOrders DecodeScheduler::TakeOrders(MonotonicTime now) {
  StepOrders orders;
  for (QueuedPull& pull : pulls_) {
    pull.order.remaining = Remaining(pull.deadline, now);
    if (pull.order.blocks.empty()) pull.order.remaining = std::max(pull.order.remaining, kReleaseTime);
    orders.pulls.push_back(std::move(pull.order));
  }
  pulls_.clear();
  return orders;
}

DecodeScheduler::Renewals DecodeScheduler::TakeRenewals(MonotonicTime now) {
  Renewals renewals;
  renewals.stopped = std::exchange(to_stop_, {});
  for (const std::string& request_id : std::exchange(to_track_, {})) {
    const auto found = requests_.find(request_id);
    if (found == requests_.end()) continue;
    renewals.tracked.push_back({request_id, found->second.remote, Remaining(found->second.deadline, now)});
  }
  return renewals;
}

void DecodeScheduler::Pull(const std::string& request_id, const Request& request, Blocks blocks) {
  const RemotePrefill& remote = request.remote;
  pulls_.push_back({{request_id, remote.transfer_id, remote.engine_id, remote.bootstrap_address, std::move(blocks), {}},
                    request.deadline});
}

void DecodeScheduler::Release(Requests::iterator request) {
  Pull(request->first, request->second, {});
  Drop(request);
}

void DecodeScheduler::Drop(Requests::iterator request) {
  StopRenewal(request->first);
  request_of_.erase(request->second.remote.transfer_id);
  requests_.erase(request);
}

void DecodeScheduler::StopRenewal(const std::string& request_id) {
  const auto untold = std::find(to_track_.begin(), to_track_.end(), request_id);
  if (untold != to_track_.end()) {
    to_track_.erase(untold);
  } else {
    to_stop_.push_back(request_id);
  }
}

}  // namespace tenure::pd
