#include "tenure/pd/producer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace tenure::pd {
namespace {

constexpr size_t kErrorBytesMax = 2048;  // Further errors of a reply are left out.
constexpr uint64_t kRequestsPerPull = kPullRequestsMax;

WaiterId MakeWaiter(uint64_t pull, uint32_t request) { return WaiterId(pull * kRequestsPerPull + request); }
uint64_t PullOf(WaiterId waiter) { return waiter.value() / kRequestsPerPull; }
uint32_t RequestOf(WaiterId waiter) { return static_cast<uint32_t>(waiter.value() % kRequestsPerPull); }

absl::Status CheckOptions(const ProducerOptions& options) {
  for (const auto& [what, duration] :
       {std::pair("write_timeout", options.write_timeout), std::pair("late_write_max", options.late_write_max)}) {
    if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
      return InvalidArgument("{} is {} s; use a finite time above 0", what, absl::ToDoubleSeconds(duration));
    }
  }
  for (const auto& [what, count] :
       {std::pair("pulls_max", options.pulls_max), std::pair("layouts_max", options.layouts_max),
        std::pair("peers_remembered", options.peers_remembered),
        std::pair("write_pieces_max", options.write_pieces_max),
        std::pair("write_samples_max", options.write_samples_max)}) {
    if (count == 0) return InvalidArgument("{} is 0; use 1 or more", what);
  }
  return absl::OkStatus();
}

std::optional<double> Seconds(std::optional<absl::Duration> lease) {
  return lease ? std::optional(absl::ToDoubleSeconds(*lease)) : std::nullopt;
}

// A renewal without ids begins like no renewal, and a pull without its fields would pass for one: only what an encoder
// writes counts.
bool IsEmptyRenewal(std::string_view message) {
  const absl::StatusOr<Renewal> renewal = DecodeRenewal(message);
  return renewal.ok() && renewal->transfer_ids.empty() && EncodeRenewal(*renewal).value_or("") == message;
}

// As P's own setting is rounded, so that equal settings stay equal.
std::optional<double> Rounded(std::optional<double> seconds) {
  return seconds ? std::optional(absl::ToDoubleSeconds(absl::Seconds(*seconds))) : std::nullopt;
}

std::string EndText(std::string_view transfer_id, HandoffEnd end) {
  switch (end) {
    case HandoffEnd::kSent:
      return fmt::format("transfer {} has been handed over before", transfer_id);
    case HandoffEnd::kExpired:
      return fmt::format("transfer {} has expired: it was neither pulled nor renewed in time", transfer_id);
    case HandoffEnd::kAborted:
      return fmt::format("the prefill of transfer {} ended without KV", transfer_id);
  }
  return std::string();
}

void AddError(std::string_view error, std::string& errors) {
  if (errors.size() + error.size() > kErrorBytesMax || errors.find(error) != std::string::npos) {
    if (errors.empty()) errors = "an error whose text is too long";
    return;
  }
  if (!errors.empty()) errors += "; ";
  errors += IsUtf8(error) ? error : "an error whose text is not UTF-8";
}

std::string Encoded(const Reply& reply) {
  absl::StatusOr<std::string> bytes = EncodeReply(reply);
  // Its ids come from a message that was decoded, and its text is bounded and UTF-8.
  TENURE_CHECK(bytes.ok());
  return *std::move(bytes);
}

std::string EncodedError(std::string_view error) {
  Reply reply;
  reply.status = ReplyStatus::kError;
  AddError(error, reply.err_message.emplace());
  return Encoded(reply);
}

}  // namespace

absl::StatusOr<Producer> Producer::Create(const ProducerOptions& options, KvLayout layout, KvTraits traits) {
  TENURE_RETURN_IF_ERROR(CheckOptions(options));
  TENURE_RETURN_IF_ERROR(CheckKvLayout(layout, traits));
  TENURE_ASSIGN_OR_RETURN(HandoffLeases leases, HandoffLeases::Create(options.handoff));
  return Producer(options, std::move(leases), PlanCache(std::move(layout), std::move(traits), options.layouts_max));
}

Producer::Producer(const ProducerOptions& options, HandoffLeases leases, PlanCache plans)
    : options_(options), leases_(std::move(leases)), plans_(std::move(plans)) {}

ProducerActions Producer::RecordStep(const StepOrders& orders, MonotonicTime now) {
  ProducerActions actions;
  Batches batches;
  for (const TransferOrder& order : orders.aborted) {
    for (const WaiterId waiter : leases_.Abandon(order.transfer_id, order.request_id, now)) {
      FailWaiter(waiter, EndText(order.transfer_id, HandoffEnd::kAborted), batches);
    }
  }
  for (const TransferOrder& order : orders.announced) {
    const absl::Status announced = leases_.Announce(order.transfer_id, order.request_id);
    if (!announced.ok()) actions.warnings.emplace_back(Message(announced));
  }
  for (const FinishOrder& order : orders.finished) {
    const auto waiters = leases_.Finish(order.transfer_id, order.request_id, order.blocks, now);
    if (!waiters.ok()) {
      actions.finished_requests.push_back(order.request_id);
      actions.warnings.emplace_back(Message(waiters.status()));
      continue;
    }
    for (const WaiterId waiter : *waiters) batches[PullOf(waiter)].ready.push_back(RequestOf(waiter));
  }
  Serve(batches, now, actions);
  return actions;
}

ProducerActions Producer::OnMessage(std::string_view peer, std::string_view message, MonotonicTime now) {
  ProducerActions actions;
  if (IsRenewal(message)) {
    AnswerRenewal(peer, message, now, actions);
    return actions;
  }
  absl::StatusOr<Pull> pull = DecodePull(message);
  if (!pull.ok() && IsEmptyRenewal(message)) {
    ++stats_.renewals;
    actions.replies.push_back({std::string(peer), Encoded(Reply())});
  } else if (!pull.ok()) {
    ++stats_.malformed_messages;
    actions.replies.push_back({std::string(peer), EncodedError(Message(pull.status()))});
    actions.warnings.emplace_back(Message(pull.status()));
  } else if (peers_.contains(std::string(peer))) {
    ++stats_.repeated_messages;
  } else {
    StartPull(peer, *std::move(pull), now, actions);
  }
  return actions;
}

void Producer::AnswerRenewal(std::string_view peer, std::string_view message, MonotonicTime now,
                             ProducerActions& actions) {
  const auto answer = [&]() -> absl::StatusOr<std::vector<std::string>> {
    const absl::StatusOr<Renewal> renewal = DecodeRenewal(message);
    if (!renewal.ok()) {
      ++stats_.malformed_messages;
      return renewal.status();
    }
    ++stats_.renewals;
    if (options_.handoff.lease && renewal->kv_lease_duration) {
      const auto ours = Seconds(options_.handoff.lease), theirs = Rounded(renewal->kv_lease_duration);
      const absl::Status agreed = CheckLeaseAgreement(ours, theirs);
      if (!agreed.ok()) {
        ++stats_.lease_mismatches;
        std::vector<std::string> ids = renewal->transfer_ids;
        ids.resize(std::min(ids.size(), kMismatchIdsMax));
        actions.mismatches.push_back({std::string(peer), ours, theirs, std::move(ids)});
        return agreed;
      }
    }
    return leases_.Renew(renewal->transfer_ids, now);
  };
  absl::StatusOr<std::vector<std::string>> unknown = answer();
  if (!unknown.ok()) {
    actions.replies.push_back({std::string(peer), EncodedError(Message(unknown.status()))});
    actions.warnings.push_back(fmt::format("a renewal is refused: {}", Message(unknown.status())));
    return;
  }
  Reply reply;
  reply.unknown_transfer_ids = *std::move(unknown);
  actions.replies.push_back({std::string(peer), Encoded(reply)});
}

absl::Status Producer::CheckPull(std::string_view peer, const Pull& pull, const PeerLayout& layout,
                                 ProducerActions& actions) {
  const bool writes = std::any_of(pull.requests.begin(), pull.requests.end(),
                                  [](const PullRequest& request) { return !request.blocks.empty(); });
  const auto ours = Seconds(options_.handoff.lease), theirs = Rounded(pull.kv_lease_duration);
  const absl::Status agreed = CheckLeaseAgreement(ours, theirs);
  if (!agreed.ok()) {
    ++stats_.lease_mismatches;
    LeaseMismatch mismatch;
    mismatch.peer =
        pull.remote_hostname.empty() ? std::string(peer) : fmt::format("{}:{}", pull.remote_hostname, pull.remote_port);
    mismatch.prefill_seconds = ours;
    mismatch.decode_seconds = theirs;
    for (size_t i = 0; i < std::min(pull.requests.size(), kMismatchIdsMax); ++i) {
      mismatch.transfer_ids.push_back(pull.requests[i].transfer_id);
    }
    actions.mismatches.push_back(std::move(mismatch));
    if (writes) return agreed;
    // D has seen it first and wants nothing more: what it gives up need not be held until the lease ends.
    actions.warnings.push_back(fmt::format("a decode worker pulls nothing: {}", Message(agreed)));
  }
  if (pulls_.size() >= options_.pulls_max) {
    return ResourceExhausted("{} pulls wait for their prefills, the maximum; retry when some have ended",
                             pulls_.size());
  }
  TENURE_RETURN_IF_ERROR(layout.consumers_needed.status());
  return writes ? layout.plan.status() : absl::OkStatus();
}

void Producer::StartPull(std::string_view peer, Pull pull, MonotonicTime now, ProducerActions& actions) {
  ++stats_.pulls;
  if (pull.requests.empty()) {
    actions.replies.push_back({std::string(peer), Encoded(Reply())});
    return;
  }
  PullInProgress started;
  started.peer = peer;
  if (pull.answer_within) started.answer_by = now + absl::Seconds(*pull.answer_within);
  pull.answer_within.reset();  // The rest of the message is the same every time.
  started.requests.swap(pull.requests);
  started.layout = plans_.Find(pull);
  pull.requests.swap(started.requests);
  if (const absl::Status checked = CheckPull(peer, pull, *started.layout, actions); !checked.ok()) {
    ++stats_.refused_pulls;
    actions.replies.push_back({std::string(peer), EncodedError(Message(checked))});
    actions.warnings.push_back(fmt::format("a pull is refused: {}", Message(checked)));
    return;
  }
  started.requests = std::move(pull.requests);
  started.unanswered = started.requests.size();
  peers_.insert(started.peer);
  const PullId id = ++last_pull_;
  PullInProgress& added = pulls_.emplace(id, std::move(started)).first->second;
  Batches batches;
  Batch& batch = batches[id];
  for (RequestIndex i = 0; i < added.requests.size(); ++i) {
    const std::string& transfer_id = added.requests[i].transfer_id;
    const HandoffLeases::PullAnswer answer = leases_.Pull(transfer_id, MakeWaiter(id, i), now);
    if (answer.state == HandoffLeases::PullState::kReady) batch.ready.push_back(i);
    if (answer.state == HandoffLeases::PullState::kEnded) {
      ++stats_.late_pulls;
      Fail(added, i, EndText(transfer_id, *answer.end), batch);
    }
    if (answer.state == HandoffLeases::PullState::kFull) {
      ++stats_.refused_requests;
      Fail(added, i, "this prefill worker has as many requests waiting as it may; retry later", batch);
    }
  }
  Serve(batches, now, actions);
}

void Producer::Fail(PullInProgress& pull, RequestIndex request, std::string_view error, Batch& batch) {
  batch.failed.push_back(pull.requests[request].request_id);
  AddError(error, batch.errors);
}

void Producer::FailWaiter(WaiterId waiter, std::string_view error, Batches& batches) {
  const PullId id = PullOf(waiter);
  Fail(pulls_.at(id), RequestOf(waiter), error, batches[id]);
}

void Producer::Serve(Batches& batches, MonotonicTime now, ProducerActions& actions) {
  for (auto& [id, batch] : batches) {
    OpenWrite write;
    for (const RequestIndex request : batch.ready) ServeRequest(id, request, batch, write, now, actions);
    if (!write.pieces.empty()) StartWrite(id, write, now, actions);
    Answer(id, batch, actions);
  }
}

void Producer::ServeRequest(PullId id, RequestIndex request, Batch& batch, OpenWrite& write, MonotonicTime now,
                            ProducerActions& actions) {
  PullInProgress& pull = pulls_.at(id);
  const PullRequest& asked = pull.requests[request];
  const HandoffBlocks* blocks = leases_.FindBlocks(asked.transfer_id);
  if (blocks == nullptr) {  // Another pull of this event was the last that it was held for.
    ++stats_.late_pulls;
    return Fail(pull, request, EndText(asked.transfer_id, HandoffEnd::kSent), batch);
  }
  if (asked.blocks.empty()) return Acknowledge(pull, request, batch, now, actions);
  if (pull.answer_by <= now) {
    ++stats_.timed_out_pulls;
    return Fail(pull, request, fmt::format("D has waited too long for transfer {}", asked.transfer_id), batch);
  }
  const WritePlan& plan = *pull.layout->plan;
  if (!plan.sends()) return Acknowledge(pull, request, batch, now, actions);
  const size_t before = write.pieces.size();
  const absl::Status appended = plan.Append(*blocks, asked.blocks, write.pieces);
  const size_t added = write.pieces.size() - before;
  if (!appended.ok() || added > options_.write_pieces_max) {
    write.pieces.resize(before);
    ++stats_.refused_requests;
    return Fail(pull, request,
                appended.ok() ? fmt::format("transfer {} takes {} pieces, above {}; use larger blocks",
                                            asked.transfer_id, added, options_.write_pieces_max)
                              : std::string(Message(appended)),
                batch);
  }
  if (added == 0) return Acknowledge(pull, request, batch, now, actions);
  if (write.pieces.size() > options_.write_pieces_max) {
    OpenWrite next;
    next.pieces.assign(write.pieces.begin() + static_cast<ptrdiff_t>(before), write.pieces.end());
    write.pieces.resize(before);
    StartWrite(id, write, now, actions);
    write = std::move(next);
  }
  TENURE_CHECK(leases_.BeginSend(asked.transfer_id, plan.consumers_needed()));
  write.requests.push_back(request);
}

void Producer::Acknowledge(PullInProgress& pull, RequestIndex request, Batch& batch, MonotonicTime now,
                           ProducerActions& actions) {
  const PullRequest& asked = pull.requests[request];
  TENURE_CHECK(leases_.BeginSend(asked.transfer_id, *pull.layout->consumers_needed));
  auto freed = leases_.EndSend(asked.transfer_id, pull.layout->consumer, true, now);
  if (freed) actions.finished_requests.push_back(*std::move(freed));
  batch.ok.push_back(asked.request_id);
}

void Producer::StartWrite(PullId id, OpenWrite& write, MonotonicTime now, ProducerActions& actions) {
  const PullInProgress& pull = pulls_.at(id);
  WriteInProgress running;
  running.pull = id;
  running.requests = std::move(write.requests);
  running.started = now;
  running.pieces = static_cast<int64_t>(write.pieces.size());
  for (const WritePiece& piece : write.pieces) running.bytes += static_cast<int64_t>(piece.size);
  running.deadline = std::min(now + options_.write_timeout + absl::Nanoseconds(running.bytes), pull.answer_by);
  last_write_ = WriteId(last_write_.value() + 1);
  actions.writes.push_back({last_write_, std::shared_ptr<const Pull>(pull.layout, &pull.layout->pull),
                            std::move(write.pieces), running.deadline});
  writes_.emplace(last_write_, std::move(running));
}

ProducerActions Producer::OnWriteDone(WriteId write, const WriteResult& result, MonotonicTime now) {
  ProducerActions actions;
  const auto found = writes_.find(write);
  if (found == writes_.end()) return actions;
  const WriteInProgress ended = std::move(found->second);
  writes_.erase(found);
  if (result.status.ok()) {
    SampleWrite(ended, now);
  } else {
    ++stats_.failed_transfers;
    actions.warnings.push_back(fmt::format("writing KV to a decode worker failed: {}", Message(result.status)));
  }
  if (result.status.ok() || result.settled) {
    EndWrite(ended, result.status, now, actions);
  } else {
    unsettled_.push_back({now + options_.late_write_max, ended, result.status});
  }
  return actions;
}

void Producer::SampleWrite(const WriteInProgress& write, MonotonicTime now) {
  if (stats_.writes.size() < options_.write_samples_max) {
    stats_.writes.push_back({now - write.started, write.bytes, write.pieces});
  } else {
    ++stats_.unsampled_writes;
  }
}

void Producer::EndWrite(const WriteInProgress& write, const absl::Status& status, MonotonicTime now,
                        ProducerActions& actions) {
  PullInProgress& pull = pulls_.at(write.pull);
  Batch batch;
  for (const RequestIndex request : write.requests) {
    const PullRequest& asked = pull.requests[request];
    auto freed = leases_.EndSend(asked.transfer_id, pull.layout->consumer, status.ok(), now);
    if (freed) actions.finished_requests.push_back(*std::move(freed));
    if (status.ok()) {
      batch.ok.push_back(asked.request_id);
    } else {
      Fail(pull, request, fmt::format("the KV could not be written: {}", Message(status)), batch);
    }
  }
  Answer(write.pull, batch, actions);
}

void Producer::Answer(PullId id, const Batch& batch, ProducerActions& actions) {
  if (batch.ok.empty() && batch.failed.empty()) return;
  const auto found = pulls_.find(id);
  PullInProgress& pull = found->second;
  pull.unanswered -= batch.ok.size() + batch.failed.size();
  Reply reply;
  reply.status = pull.unanswered == 0 ? ReplyStatus::kFinish : ReplyStatus::kContinue;
  reply.ok_requests = batch.ok;
  reply.err_requests = batch.failed;
  if (!batch.failed.empty()) {
    reply.err_message = batch.errors;
    actions.warnings.push_back(fmt::format("{} requests of a pull fail: {}", batch.failed.size(), batch.errors));
  }
  actions.replies.push_back({pull.peer, Encoded(reply)});
  if (pull.unanswered > 0) return;
  RememberPeer(std::move(pull.peer));
  pulls_.erase(found);
}

void Producer::RememberPeer(std::string peer) {
  remembered_peers_.push_back(std::move(peer));
  if (remembered_peers_.size() <= options_.peers_remembered) return;
  peers_.erase(remembered_peers_.front());
  remembered_peers_.pop_front();
}

ProducerActions Producer::Scan(MonotonicTime now) {
  ProducerActions actions;
  const absl::Duration second = absl::Seconds(1);
  next_scan_ = now + (options_.handoff.lease ? std::min(*options_.handoff.lease / 6, second) : second);
  while (!unsettled_.empty() && unsettled_.front().until <= now) {
    const UnsettledWrite unsettled = std::move(unsettled_.front());
    unsettled_.pop_front();
    EndWrite(unsettled.write, unsettled.status, now, actions);
  }
  HandoffLeases::ScanResult scanned = leases_.Scan(now);
  stats_.expired_requests += static_cast<int64_t>(scanned.expired_requests.size());
  for (std::string& request_id : scanned.expired_requests) {
    actions.warnings.push_back(fmt::format("request {}: no decoder took its KV in time; it is freed", request_id));
    actions.finished_requests.push_back(std::move(request_id));
  }
  Batches batches;
  stats_.timed_out_pulls += static_cast<int64_t>(scanned.timed_out.size());
  for (const HandoffWaiter& waiter : scanned.timed_out) {
    FailWaiter(waiter.waiter,
               fmt::format("the prefill of transfer {} did not end within {} s", waiter.transfer_id,
                           absl::ToDoubleSeconds(options_.handoff.hold_timeout)),
               batches);
  }
  Serve(batches, now, actions);
  MarkOverdueWrites(now, actions);
  return actions;
}

void Producer::MarkOverdueWrites(MonotonicTime now, ProducerActions& actions) {
  for (auto& [id, write] : writes_) {
    if (write.overdue || write.deadline > now) continue;
    write.overdue = true;
    ++stats_.overdue_writes;
    actions.warnings.push_back(
        fmt::format("write {} has no result at its deadline; its blocks stay held until it has one", id.value()));
  }
}

ProducerStats Producer::TakeStats() { return std::exchange(stats_, ProducerStats()); }

}  // namespace tenure::pd
