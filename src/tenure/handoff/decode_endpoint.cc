#include "tenure/handoff/decode_endpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/handoff/closed_here.h"
#include "tenure/handoff/peer_transport.h"

namespace tenure::handoff {
namespace {

template <typename Item>
void MoveTo(std::vector<Item>& to, std::vector<Item>& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecodeEndpoint>> DecodeEndpoint::Start(const DecodeEndpointOptions& options,
                                                                      std::shared_ptr<transfer::Transport> transport,
                                                                      std::shared_ptr<MismatchBoard> board,
                                                                      const Clock& clock) {
  pd::ConsumerOptions consumer_options = options.consumer;
  TENURE_RETURN_IF_ERROR(WriteTransport(transport->Address(), consumer_options.worker));
  TENURE_ASSIGN_OR_RETURN(pd::Consumer consumer, pd::Consumer::Create(consumer_options));
  std::unique_ptr<DecodeEndpoint> endpoint(
      new DecodeEndpoint(std::move(consumer), std::move(transport), std::move(board), clock));
  TENURE_ASSIGN_OR_RETURN(endpoint->links_, DecodeLinks::Create(options.links, clock));
  DecodeEndpoint* raw = endpoint.get();
  DecodeLinks::Events events;
  events.on_answer = [raw](pd::ChannelId channel, const std::string& answer) {
    raw->Handle([&](pd::Consumer& core, MonotonicTime now) { return core.OnReply(channel, answer, now); });
  };
  events.on_not_sent = [raw](pd::ChannelId channel, const std::string& why) {
    raw->Handle([&](pd::Consumer& core, MonotonicTime now) { return core.OnNotSent(channel, why, now); });
  };
  events.on_channel_failed = [raw](pd::ChannelId channel, const std::string& why) {
    raw->Handle([&](pd::Consumer& core, MonotonicTime now) { return core.OnChannelFailed(channel, why, now); });
  };
  events.on_query_answer = [raw](const std::string& url, const absl::StatusOr<RegisteredEngines>& engines) {
    raw->Handle([&](pd::Consumer& core, MonotonicTime now) { return core.OnQueryAnswer(url, engines, now); });
  };
  events.on_time = [raw](MonotonicTime now) { return raw->OnTime(now); };
  endpoint->links_->Start(std::move(events));
  return endpoint;
}

DecodeEndpoint::DecodeEndpoint(pd::Consumer consumer, std::shared_ptr<transfer::Transport> transport,
                               std::shared_ptr<MismatchBoard> board, const Clock& clock)
    : clock_(clock),
      transport_(std::move(transport)),
      board_(std::move(board)),
      log_(clock, "decode"),
      consumer_(std::move(consumer)) {}

DecodeEndpoint::~DecodeEndpoint() = default;

template <typename Event>
void DecodeEndpoint::Handle(Event event) {
  pd::ConsumerActions actions;
  {
    MutexLock lock(mutex_);
    actions = event(consumer_, clock_.Now());
    // Before anybody can see what comes of it.
    if (board_ != nullptr && !actions.mismatches.empty()) board_->Add(actions.mismatches);
    MoveTo(outcomes_.received, actions.received);
    MoveTo(outcomes_.failed, actions.failed);
    MoveTo(outcomes_.failing, actions.failing);
  }
  CarryOut(std::move(actions));
}

void DecodeEndpoint::StartPulls(pd::StepOrders orders) {
  // The deadlines begin here, not when the thread gets to it.
  links_->Post([this, orders = std::move(orders), now = clock_.Now()]() mutable {
    const absl::Duration waited = clock_.Now() - now;
    for (pd::PullOrder& pull : orders.pulls) pull.remaining = std::max(pull.remaining - waited, absl::ZeroDuration());
    Handle([&](pd::Consumer& core, MonotonicTime at) { return core.StartPulls(orders.pulls, at); });
  });
}

MonotonicTime DecodeEndpoint::OnTime(MonotonicTime now) {
  MonotonicTime next;
  {
    MutexLock lock(mutex_);
    next = consumer_.NextTick();
  }
  if (now < next) return next;
  Handle([](pd::Consumer& core, MonotonicTime at) { return core.Tick(at); });
  MutexLock lock(mutex_);
  return consumer_.NextTick();
}

void DecodeEndpoint::CarryOut(pd::ConsumerActions actions) {
  links_->CarryOut(actions.queries, std::move(actions.sends), actions.closes);
  log_.Warn(actions.warnings);
  for (const std::string& address : actions.looks) {
    if (!IsClosedHere(address)) continue;
    Handle([&](pd::Consumer& core, MonotonicTime now) { return core.OnWorkerGone(address, now); });
  }
}

DecodeOutcomes DecodeEndpoint::TakeOutcomes() {
  MutexLock lock(mutex_);
  return std::exchange(outcomes_, {});
}

pd::ConsumerStats DecodeEndpoint::TakeStats() {
  MutexLock lock(mutex_);
  return consumer_.TakeStats();
}

}  // namespace tenure::handoff
