// Renews the handoff leases of the transfers that a decode engine still wants, from a thread of its own (pd_protocol
// spec §6, edge cases 31 to 38). One in the process of D's scheduler, which says what it wants and that it is alive.
//
// A step longer than the lease costs nothing, since no step drives the renewals; a scheduler that hangs is noticed, and
// then P's memory is given back. One log line says so.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/handoff/decode_links.h"
#include "tenure/handoff/paced_log.h"
#include "tenure/pd/renewal_schedule.h"
#include "tenure/pd/renewer.h"

namespace tenure::handoff {

struct RenewalSenderOptions {
  pd::RenewalScheduleOptions schedule;  // With the lease.
  size_t engines_max = 4096;            // Whose workers are remembered.
  DecodeLinksOptions links = {};
};

class RenewalSender {
 public:
  // `clock` outlives it. Errors: those of the schedule's, the renewer's and Channels' options.
  static absl::StatusOr<std::unique_ptr<RenewalSender>> Start(const RenewalSenderOptions& options, const Clock& clock);
  ~RenewalSender();

  // All of these: any thread, never block.

  // Until Stop, `remaining` or the engine's refusal. Counts as a step, since an engine that had no request took none.
  // Errors: those of RenewalSchedule::Track.
  absl::Status Track(std::string_view request_id, std::string_view transfer_id, std::string_view engine_id,
                     std::string_view bootstrap_address, absl::Duration remaining);
  void Stop(std::string_view request_id);
  // The scheduler's loop runs; or has nothing to do and sleeps until there is.
  void Stepped();
  void WentIdle();
  // Transfers that P held and holds no more; see pd::RenewerActions.
  std::vector<pd::RenewerActions::Gone> TakeGone();
  pd::RenewerStats TakeStats();
  size_t num_tracked();

 private:
  RenewalSender(const RenewalSenderOptions& options, pd::RenewalSchedule schedule, pd::Renewer renewer,
                const Clock& clock);
  MonotonicTime OnTime(MonotonicTime now);
  // On the loop's thread, with no lock held.
  void CarryOut(pd::RenewerActions actions);
  template <typename Event>
  void Handle(Event event);
  MonotonicTime NextTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Duration silent_after_;
  const Clock& clock_;
  PacedLog log_;  // The loop's thread alone.
  Mutex mutex_;
  pd::RenewalSchedule schedule_ ABSL_GUARDED_BY(mutex_);
  pd::Renewer renewer_ ABSL_GUARDED_BY(mutex_);
  std::vector<pd::RenewerActions::Gone> gone_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DecodeLinks> links_;  // The first to go: its events use all the rest.
};

}  // namespace tenure::handoff
