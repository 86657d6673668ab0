// A prefill worker on the network: pulls and renewals in, KV and answers out (pd_protocol spec §3, §5, §6).
//
// pd::Producer around a Router and a Transport, on a thread of its own, which also looks for what has expired while the
// engine stands still. One a worker process; its address goes to the bootstrap server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/handoff/event_loop.h"
#include "tenure/handoff/mismatch_board.h"
#include "tenure/handoff/paced_log.h"
#include "tenure/handoff/router.h"
#include "tenure/pd/producer.h"
#include "tenure/transfer/transport.h"

namespace tenure::handoff {

struct PrefillEndpointOptions {
  pd::ProducerOptions producer = {};
  RouterOptions router = {};
  size_t messages_waiting_max = 65'536;                  // For the thread; further pulls get ERROR, renewals nothing.
  size_t message_bytes_waiting_max = size_t{256} << 20;  // The same of their bytes.
};

struct PrefillEndpointStats {
  pd::ProducerStats producer;  // Since the last call.
  RouterStats router;          // Since the start. Its malformed messages are among the producer's too.
  // Now.
  size_t transfers = 0;  // Announced or held.
  size_t pulls = 0;      // With requests that wait or are written.
  size_t writes = 0;
};

class PrefillEndpoint {
 public:
  // Listens when it returns. The transport has the memory that the layout names registered; `board` (may be null) gets
  // the lease mismatches; `clock` is the transport's, too, and outlives all. Errors: those of Producer::Create and
  // Router::Start.
  static absl::StatusOr<std::unique_ptr<PrefillEndpoint>> Start(const PrefillEndpointOptions& options,
                                                                pd::KvLayout layout, pd::KvTraits traits,
                                                                std::shared_ptr<transfer::Transport> transport,
                                                                std::shared_ptr<MismatchBoard> board,
                                                                const Clock& clock);
  // Writes under way are left to the transport, and their pulls get no answer: D sees the connection end.
  ~PrefillEndpoint();

  // tcp://IP:PORT.
  const std::string& address() const { return router_->address(); }

  // One step's orders of P's scheduler. Any thread, never blocks.
  void RecordStep(pd::StepOrders orders);
  // P's request ids whose blocks the worker needs no more, each once. Any thread.
  std::vector<std::string> TakeFinished();
  // Any thread.
  PrefillEndpointStats TakeStats();

 private:
  PrefillEndpoint(const PrefillEndpointOptions& options, pd::Producer producer,
                  std::shared_ptr<transfer::Transport> transport, std::shared_ptr<MismatchBoard> board,
                  const Clock& clock);
  std::optional<std::string> OnMessage(std::string peer, std::string message);
  MonotonicTime OnTime(MonotonicTime now);
  // On the loop's thread, with no lock held.
  void CarryOut(pd::ProducerActions actions);
  void PostWrite(pd::HandoffWrite write);
  template <typename Event>
  void Handle(Event event);

  const Clock& clock_;
  const std::shared_ptr<transfer::Transport> transport_;
  const std::shared_ptr<MismatchBoard> board_;
  PacedLog log_;  // The loop's thread alone.
  const size_t message_bytes_waiting_max_;
  std::atomic<size_t> message_bytes_waiting_{0};
  Mutex mutex_;
  int64_t malformed_told_ ABSL_GUARDED_BY(mutex_) = 0;
  pd::Producer producer_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> finished_ ABSL_GUARDED_BY(mutex_);
  // Shared with the writes under way, which may end after this has gone.
  const std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<Router> router_;
};

}  // namespace tenure::handoff
