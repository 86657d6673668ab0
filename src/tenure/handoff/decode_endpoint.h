// A decode worker on the network: pulls out, KV and outcomes in (pd_protocol spec §2, §3, §5).
//
// pd::Consumer around the channels to P's workers and the questions to bootstrap servers, on a thread of its own. One a
// worker process; kv_both workers have a PrefillEndpoint beside it, over the same transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/handoff/decode_links.h"
#include "tenure/handoff/mismatch_board.h"
#include "tenure/handoff/paced_log.h"
#include "tenure/pd/consumer.h"
#include "tenure/transfer/transport.h"

namespace tenure::handoff {

struct DecodeEndpointOptions {
  pd::ConsumerOptions consumer;  // Its worker's transport is filled in.
  DecodeLinksOptions links = {};
};

// What has ended since the last look. See pd::ConsumerActions.
struct DecodeOutcomes {
  std::vector<std::string> received;
  std::vector<pd::FailedPull> failed;
  std::vector<pd::FailingPull> failing;
};

class DecodeEndpoint {
 public:
  // The transport has the memory that the worker's layout names registered; `board` (may be null) gets the lease
  // mismatches; `clock` is the transport's, too, and outlives all. Errors: those of Consumer::Create, Channels::Start
  // and WriteTransport.
  static absl::StatusOr<std::unique_ptr<DecodeEndpoint>> Start(const DecodeEndpointOptions& options,
                                                               std::shared_ptr<transfer::Transport> transport,
                                                               std::shared_ptr<MismatchBoard> board,
                                                               const Clock& clock);
  // Requests under way have no outcome then, and P may still write until the transport has gone.
  ~DecodeEndpoint();

  // The pulls of one step's orders; the rest is not read. Any thread, never blocks. Deadlines count from now.
  void StartPulls(pd::StepOrders orders);
  // Any thread.
  DecodeOutcomes TakeOutcomes();
  // Since the last call. Any thread.
  pd::ConsumerStats TakeStats();

 private:
  DecodeEndpoint(pd::Consumer consumer, std::shared_ptr<transfer::Transport> transport,
                 std::shared_ptr<MismatchBoard> board, const Clock& clock);
  MonotonicTime OnTime(MonotonicTime now);
  // On the loop's thread, with no lock held.
  void CarryOut(pd::ConsumerActions actions);
  template <typename Event>
  void Handle(Event event);

  const Clock& clock_;
  const std::shared_ptr<transfer::Transport> transport_;  // Kept: P writes through it.
  const std::shared_ptr<MismatchBoard> board_;
  PacedLog log_;  // The loop's thread alone.
  Mutex mutex_;
  pd::Consumer consumer_ ABSL_GUARDED_BY(mutex_);
  DecodeOutcomes outcomes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DecodeLinks> links_;  // The first to go: its events use all the rest.
};

}  // namespace tenure::handoff
