// Which transfers D renews, and when (pd_protocol spec §6, edge cases 31 to 33).
//
// A request is tracked from its arrival, while it is still queued, until its KV is here, it is finished, its pull only
// releases, or its own deadline has passed. All that is tracked goes out every sixth of the lease, the first time at
// once, so three lost rounds cost nothing. A scheduler that neither steps nor has said that it is idle stops all
// renewals after `renew_without_step`: a hung engine must not hold P's memory.
//
// A state machine: the owner's timer passes `now`, which never runs back. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"

namespace tenure::pd {

struct RenewalScheduleOptions {
  absl::Duration lease;                                             // The same as P's.
  std::optional<absl::Duration> renew_without_step = std::nullopt;  // None: 10 leases.
  size_t requests_max = 1'000'000;
};

class RenewalSchedule {
 public:
  // One message to every P worker of the engine that D would pull from.
  struct Batch {
    std::string engine_id;
    std::vector<std::string> transfer_ids;  // At most kRenewalIdsPerMessage, ascending, each once.
  };
  struct Round {
    std::vector<Batch> batches;         // By engine.
    std::vector<std::string> given_up;  // Requests past their deadline; no longer tracked.
    bool fell_silent = false;           // The scheduler hangs on requests: renewals stop. Once until it steps again.
  };

  // InvalidArgument: durations that are not finite and above 0.
  static absl::StatusOr<RenewalSchedule> Create(const RenewalScheduleOptions& options, MonotonicTime now);

  // D's request wants `transfer_id` of P's engine until `deadline`; once more replaces what was said. InvalidArgument
  // for an id that no renewal can carry, ResourceExhausted at `requests_max`: the request then has no more than its
  // first lease.
  absl::Status Track(std::string_view request_id, std::string_view transfer_id, std::string_view engine_id,
                     MonotonicTime deadline);
  void Stop(std::string_view request_id);

  // The scheduler's loop runs; or it has nothing to do and sleeps until there is.
  void Stepped(MonotonicTime now);
  void WentIdle() { idle_ = true; }

  // When TakeRound has something to do next.
  MonotonicTime NextRound() const { return next_round_; }
  // Empty before NextRound.
  Round TakeRound(MonotonicTime now);

  size_t num_tracked() const { return tracked_.size(); }

 private:
  struct Tracked {
    std::string transfer_id;
    std::string engine_id;
    MonotonicTime deadline;
  };

  RenewalSchedule(const RenewalScheduleOptions& options, MonotonicTime now)
      : options_(options), last_step_(now), next_round_(now) {}

  RenewalScheduleOptions options_;
  std::map<std::string, Tracked, std::less<>> tracked_;  // By D's request id: requests may share a transfer.
  MonotonicTime last_step_;
  bool idle_ = false;
  bool silent_ = false;
  MonotonicTime next_round_;
};

}  // namespace tenure::pd
