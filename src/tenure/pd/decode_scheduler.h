// The scheduler's side of a decode engine (D): what is offered to the engine, pulled, and renewed.
//
// A request that names a transfer of P is renewed from its arrival, while it is queued, offered once, and pulled when
// it has blocks. A pull without blocks only releases P's: all is in D's cache already, another connector loads it, or
// the request ended before it was scheduled. The request has one deadline from its arrival on; past it nothing is
// pulled any more and the engine computes the prompt itself.
//
// A state machine, one thread, the engine's scheduler; `now` never runs back. Source: pd_protocol spec §4 and §9 (12,
// 18, 27, 31 to 33).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/pd/step_orders.h"
#include "tenure/pd/transfer_groups.h"

namespace tenure::pd {

// What a request says of the prefill that it wants; an empty text is a missing field.
struct RemotePrefill {
  std::string transfer_id;
  std::string engine_id;
  std::string bootstrap_address;
};

struct DecodeSchedulerOptions {
  // A model with recurrent states: P computes all tokens but the last one, which D computes from the state before it.
  bool keeps_last_token = false;
  absl::Duration request_timeout = absl::Seconds(540);
};

class DecodeScheduler {
 public:
  using Blocks = TransferGroups::Blocks;
  static constexpr size_t kRequestsMax = 1'000'000;
  // The time of a pull that only releases, at least: past its request's deadline it still frees P's memory.
  static constexpr absl::Duration kReleaseTime = absl::Seconds(60);

  // What changes for the sender of renewals.
  struct Renewals {
    struct Track {
      std::string request_id;
      RemotePrefill remote;
      absl::Duration remaining;  // Until the request's deadline.
    };
    std::vector<std::string> stopped;  // Before what is tracked.
    std::vector<Track> tracked;
  };

  DecodeScheduler(TransferGroups groups, const DecodeSchedulerOptions& options)
      : groups_(std::move(groups)), options_(options) {}

  // The engine has a new request. InvalidArgument when nothing can be pulled for it, which is then computed here:
  // fields that are missing or unusable, a transfer or a request id that another request has. ResourceExhausted at
  // kRequestsMax.
  absl::Status Arrived(std::string_view request_id, const RemotePrefill& remote, MonotonicTime now);

  // Tokens past `computed` that a pull brings; 0 for nothing, also when one is under way or was.
  Tokens Offered(std::string_view request_id, Tokens num_prompt_tokens, Tokens computed, MonotonicTime now);
  // The engine has blocks for `num_external` tokens of the offer: those of the transfer groups that the pull fills. 0
  // tokens only releases P's. No effect for a request that has nothing to pull.
  void Allocated(std::string_view request_id, Blocks blocks, Tokens num_external);
  // The request has ended, or was refused before it came here: a pull under way goes on, since P writes into its
  // blocks.
  void Finished(std::string_view request_id);
  // P holds the transfer no more. When nothing was pulled yet nothing will be, and the engine computes the prompt: the
  // request's id, to be logged, or an empty one.
  std::string Gone(std::string_view engine_id, std::string_view transfer_id);
  // Every worker has settled the pull. False: no pull with blocks is known, so the engine must not be told.
  bool Settled(std::string_view request_id);

  bool has_orders() const { return !pulls_.empty(); }
  // What has come since the last call.
  StepOrders TakeOrders(MonotonicTime now);
  Renewals TakeRenewals(MonotonicTime now);
  // Requests that have not been pulled, or whose pull is under way.
  size_t num_pending() const { return requests_.size(); }

 private:
  struct Request {
    RemotePrefill remote;
    MonotonicTime deadline;
    bool pulling = false;
  };
  struct QueuedPull {
    PullOrder order;
    MonotonicTime deadline;
  };
  using Requests = std::map<std::string, Request, std::less<>>;

  // Queues the request's pull and stops its renewal unless its blocks wait for it.
  void Pull(const std::string& request_id, const Request& request, Blocks blocks);
  void Release(Requests::iterator request);
  // Without a word to P.
  void Drop(Requests::iterator request);
  void StopRenewal(const std::string& request_id);

  TransferGroups groups_;
  DecodeSchedulerOptions options_;
  Requests requests_;
  std::map<std::string, std::string, std::less<>> request_of_;  // By the transfer ids of `requests_`.
  std::vector<QueuedPull> pulls_;
  std::vector<std::string> to_track_;
  std::vector<std::string> to_stop_;
};

}  // namespace tenure::pd
