#include "tenure/handoff/prefill_endpoint.h"

#include <iterator>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/handoff/peer_transport.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace tenure::handoff {
namespace {

// A text of ours, so it can be encoded.
std::string ErrorReply(std::string_view text) {
  pd::Reply reply;
  reply.status = pd::ReplyStatus::kError;
  reply.err_message = text;
  return pd::EncodeReply(reply).value();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefillEndpoint>> PrefillEndpoint::Start(const PrefillEndpointOptions& options,
                                                                        pd::KvLayout layout, pd::KvTraits traits,
                                                                        std::shared_ptr<transfer::Transport> transport,
                                                                        std::shared_ptr<MismatchBoard> board,
                                                                        const Clock& clock) {
  TENURE_ASSIGN_OR_RETURN(pd::Producer producer,
                          pd::Producer::Create(options.producer, std::move(layout), std::move(traits)));
  std::unique_ptr<PrefillEndpoint> endpoint(
      new PrefillEndpoint(options, std::move(producer), std::move(transport), std::move(board), clock));
  PrefillEndpoint* raw = endpoint.get();
  RouterOptions router = options.router;
  router.malformed_reply = ErrorReply("a message is one frame; send what docs/reference/pd-wire.md describes");
  TENURE_ASSIGN_OR_RETURN(endpoint->router_, Router::Start(router, [raw](std::string peer, std::string message) {
                            return raw->OnMessage(std::move(peer), std::move(message));
                          }));
  endpoint->loop_->Start([raw](MonotonicTime now) { return raw->OnTime(now); });
  return endpoint;
}

PrefillEndpoint::PrefillEndpoint(const PrefillEndpointOptions& options, pd::Producer producer,
                                 std::shared_ptr<transfer::Transport> transport, std::shared_ptr<MismatchBoard> board,
                                 const Clock& clock)
    : clock_(clock),
      transport_(std::move(transport)),
      board_(std::move(board)),
      log_(clock, "prefill"),
      message_bytes_waiting_max_(options.message_bytes_waiting_max),
      producer_(std::move(producer)),
      loop_(std::make_shared<EventLoop>(clock, options.messages_waiting_max)) {}

// The loop ends first: its tasks use all the rest.
PrefillEndpoint::~PrefillEndpoint() { loop_->Stop(); }

template <typename Event>
void PrefillEndpoint::Handle(Event event) {
  pd::ProducerActions actions;
  {
    MutexLock lock(mutex_);
    actions = event(producer_, clock_.Now());
    // Before anybody can see what comes of it.
    if (board_ != nullptr && !actions.mismatches.empty()) board_->Add(actions.mismatches);
    std::move(actions.finished_requests.begin(), actions.finished_requests.end(), std::back_inserter(finished_));
  }
  CarryOut(std::move(actions));
}

void PrefillEndpoint::RecordStep(pd::StepOrders orders) {
  loop_->Post([this, orders = std::move(orders)] {
    Handle([&](pd::Producer& producer, MonotonicTime now) { return producer.RecordStep(orders, now); });
  });
}

std::optional<std::string> PrefillEndpoint::OnMessage(std::string peer, std::string message) {
  const size_t bytes = message.size();
  const bool renewal = pd::IsRenewal(message);
  // The router's thread alone adds, so what is read here can only become less.
  bool taken =
      bytes <= message_bytes_waiting_max_ && message_bytes_waiting_.load() <= message_bytes_waiting_max_ - bytes;
  if (taken) {
    message_bytes_waiting_ += bytes;
    taken = loop_->TryPost([this, peer = std::move(peer), message = std::move(message)] {
      Handle([&](pd::Producer& producer, MonotonicTime now) { return producer.OnMessage(peer, message, now); });
      message_bytes_waiting_ -= message.size();
    });
    if (!taken) message_bytes_waiting_ -= bytes;
  }
  // D would take an error for a P that knows no renewals and send no more; without an answer it tries again in a round.
  if (taken || renewal) return std::nullopt;
  return ErrorReply("the prefill worker has too many messages waiting; retry later");
}

MonotonicTime PrefillEndpoint::OnTime(MonotonicTime now) {
  MonotonicTime next;
  {
    MutexLock lock(mutex_);
    next = producer_.NextScan();
  }
  if (now < next) return next;
  Handle([](pd::Producer& producer, MonotonicTime at) { return producer.Scan(at); });
  MutexLock lock(mutex_);
  return producer_.NextScan();
}

void PrefillEndpoint::CarryOut(pd::ProducerActions actions) {
  for (pd::PeerReply& reply : actions.replies) router_->Reply(std::move(reply.peer), std::move(reply.bytes));
  for (pd::HandoffWrite& write : actions.writes) PostWrite(std::move(write));
  log_.Warn(actions.warnings);
}

void PrefillEndpoint::PostWrite(pd::HandoffWrite write) {
  // The loop may have ended when the result comes: then nobody waits for it, and the task is dropped.
  const auto done = [this, loop = loop_, id = write.id](transfer::WriteResult result) {
    loop->Post([this, id, result = pd::WriteResult{std::move(result.status), result.settled}] {
      Handle([&](pd::Producer& producer, MonotonicTime now) { return producer.OnWriteDone(id, result, now); });
    });
  };
  transport_->Post(ReadTransport(*write.peer), std::move(write.pieces), write.deadline, done);
}

std::vector<std::string> PrefillEndpoint::TakeFinished() {
  MutexLock lock(mutex_);
  return std::exchange(finished_, {});
}

PrefillEndpointStats PrefillEndpoint::TakeStats() {
  const RouterStats router = router_->stats();
  MutexLock lock(mutex_);
  pd::ProducerStats producer = producer_.TakeStats();
  producer.malformed_messages += router.malformed_messages - malformed_told_;
  malformed_told_ = router.malformed_messages;
  return {.producer = std::move(producer),
          .router = router,
          .transfers = producer_.num_transfers(),
          .pulls = producer_.num_pulls(),
          .writes = producer_.num_writes()};
}

}  // namespace tenure::handoff
