// The scheduler's side of a prefill engine (P): which requests are announced, finished and aborted in a step.
//
// A request is announced when the engine first schedules it. When it ends with its KV whole, its blocks stay until
// every worker has reported that they are sent or expired; any other end frees them at once and tells D. A transfer id
// belongs to the first request that brings it: a second one (n > 1, a list of prompts) is refused, and runs without a
// hand-over.
//
// A state machine, one thread, the engine's scheduler. Nothing is ordered by an unordered container. Source:
// pd_protocol spec §4 and §9 (5, 6, 12, 13).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tenure/pd/step_orders.h"
#include "tenure/pd/transfer_groups.h"

namespace tenure::pd {

class PrefillScheduler {
 public:
  using Blocks = TransferGroups::Blocks;
  static constexpr size_t kRequestsMax = 1'000'000;
  enum class End {
    kWhole,  // All of the prompt is computed: the engine stopped at its limit, or the first token was a stop token.
    kOther,  // Aborted, failed.
  };

  explicit PrefillScheduler(TransferGroups groups) : groups_(std::move(groups)) {}

  // The engine schedules the request, for the first time or again. InvalidArgument, once a request, when its KV cannot
  // be handed over: no usable transfer id, or one that another request has. ResourceExhausted at kRequestsMax.
  absl::Status Scheduled(std::string_view request_id, std::string_view transfer_id);

  // The request has ended; `blocks` are those of the transfer groups. True: the engine keeps the request and its blocks
  // until Sent, also when there are none. A request that was never scheduled counts as aborted.
  bool Finished(std::string_view request_id, std::string_view transfer_id, End end, Blocks blocks);
  // Every worker has reported it. False: not a request that is kept, so not for the engine to free.
  bool Sent(std::string_view request_id);

  bool has_orders() const { return !orders_.empty(); }
  // What has come since the last call.
  StepOrders TakeOrders() { return std::exchange(orders_, {}); }
  // Requests whose blocks are kept.
  size_t num_kept() const { return num_kept_; }

 private:
  struct Request {
    std::string transfer_id;  // Empty: refused.
    bool kept = false;
  };

  void Forget(std::map<std::string, Request, std::less<>>::iterator request);

  TransferGroups groups_;
  std::map<std::string, Request, std::less<>> requests_;
  std::map<std::string, std::string, std::less<>> owner_of_;  // Transfer id to request id.
  size_t num_kept_ = 0;
  StepOrders orders_;
};

}  // namespace tenure::pd
