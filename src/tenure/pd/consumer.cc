#include "tenure/pd/consumer.h"

#include <algorithm>

#include "tenure/base/status.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

bool IsReleaseOnly(const PullOrder& order) { return order.blocks.empty(); }

absl::Status CheckOptions(const ConsumerOptions& options) {
  for (const auto& [what, duration] :
       {std::pair("late_write_max", options.late_write_max), std::pair("partial_retry", options.partial_retry),
        std::pair("release_timeout_min", options.release_timeout_min)}) {
    if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
      return InvalidArgument("{} is {} s; use a finite time above 0", what, absl::ToDoubleSeconds(duration));
    }
  }
  if (options.requests_max == 0 || options.engines_max == 0) {
    return InvalidArgument("requests_max is {}, engines_max {}; use 1 or more", options.requests_max,
                           options.engines_max);
  }
  if (!options.worker.requests.empty()) {
    return InvalidArgument("the worker's pull has {} requests; leave them out", options.worker.requests.size());
  }
  return EncodePull(options.worker).status();
}

bool Names(const std::map<int64_t, RegisteredEngine>& answer, std::string_view engine_id) {
  return std::any_of(answer.begin(), answer.end(),
                     [engine_id](const auto& item) { return item.second.engine_id == engine_id; });
}

}  // namespace

absl::StatusOr<Consumer> Consumer::Create(const ConsumerOptions& options) {
  TENURE_RETURN_IF_ERROR(CheckOptions(options));
  WorkerRank rank;
  rank.tp_size = options.worker.remote_tp_size;
  rank.tp_rank = options.worker.remote_tp_rank;
  rank.pp_size = options.worker.remote_pp_size;
  rank.pp_rank = options.worker.remote_pp_rank.value_or(0);
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(rank));
  return Consumer(options, rank);
}

Consumer::Consumer(const ConsumerOptions& options, WorkerRank rank)
    : options_(options), rank_(rank), engines_(options.engines_max) {}

ConsumerActions Consumer::StartPulls(const std::vector<PullOrder>& orders, MonotonicTime now) {
  ConsumerActions actions;
  std::map<std::string, std::vector<Serial>> known;
  for (const PullOrder& order : orders) {
    if (!IsReleaseOnly(order) && by_id_.contains(order.request_id)) {
      actions.warnings.push_back(
          fmt::format("request {} is pulled already; the second order is dropped", order.request_id));
      continue;
    }
    if (const absl::Status checked = CheckOrder(order); !checked.ok()) {
      if (IsReleaseOnly(order)) continue;
      ++stats_.failed_receives;
      actions.failed.push_back({order.request_id, std::string(Message(checked)), order.blocks});
      continue;
    }
    const Serial serial = AddRequest(order, now);
    if (engines_.Find(order.engine_id) != nullptr) {
      known[order.engine_id].push_back(serial);
    } else {
      Ask(order.bootstrap_address, serial, actions);
    }
  }
  for (const auto& [engine_id, serials] : known) SendPulls(engine_id, serials, now, actions);
  return actions;
}

absl::Status Consumer::CheckOrder(const PullOrder& order) const {
  TENURE_RETURN_IF_ERROR(CheckText("request_id", order.request_id));
  TENURE_RETURN_IF_ERROR(CheckText("transfer_id", order.transfer_id));
  TENURE_RETURN_IF_ERROR(CheckItems("blocks", order.blocks.size()));
  for (const std::vector<int64_t>& ids : order.blocks) TENURE_RETURN_IF_ERROR(CheckItems("blocks", ids.size()));
  if (requests_.size() >= options_.requests_max) {
    return ResourceExhausted("request {}: {} pulls have not ended, the maximum; retry when some have", order.request_id,
                             requests_.size());
  }
  if (order.remaining <= absl::ZeroDuration() && !IsReleaseOnly(order)) {
    return FailedPrecondition("request {}: its deadline passed before the pull was sent", order.request_id);
  }
  return absl::OkStatus();
}

Consumer::Serial Consumer::AddRequest(const PullOrder& order, MonotonicTime now) {
  const Serial serial = ++last_serial_;
  absl::Duration remaining = order.remaining;
  if (IsReleaseOnly(order)) {
    remaining = std::max(remaining, options_.release_timeout_min);
  } else {
    by_id_.emplace(order.request_id, serial);
  }
  Request& request = requests_[serial];
  request.order = order;
  request.timer = now + remaining;
  timers_.emplace(request.timer, serial);
  return serial;
}

void Consumer::Ask(const std::string& address, Serial serial, ConsumerActions& actions) {
  const auto [asking, added] = asking_.try_emplace(address);
  asking->second.requests.push_back(serial);
  if (added) actions.queries.push_back(address);
}

ConsumerActions Consumer::OnQueryAnswer(std::string_view bootstrap_address,
                                        const absl::StatusOr<std::map<int64_t, RegisteredEngine>>& answer,
                                        MonotonicTime now) {
  ConsumerActions actions;
  const auto found = asking_.find(bootstrap_address);
  if (found == asking_.end() || !found->second.in_flight) return actions;
  const std::vector<Serial> waiting = std::move(found->second.requests);
  asking_.erase(found);
  if (answer.ok()) {
    for (const std::string& engine_id : engines_.Learn(*answer)) LoseOldChannels(engine_id, now, actions);
  } else {
    ++stats_.failed_queries;
    actions.warnings.push_back(
        fmt::format("bootstrap server {} cannot be asked: {}", bootstrap_address, Message(answer.status())));
  }
  std::map<std::string, std::vector<Serial>> known;
  Asking again;
  again.in_flight = false;
  again.retry_at = now + options_.partial_retry;
  for (const Serial serial : waiting) {
    const auto request = requests_.find(serial);
    if (request == requests_.end()) continue;  // Its deadline has passed.
    const std::string& engine_id = request->second.order.engine_id;
    if (engines_.Find(engine_id) != nullptr) {
      known[engine_id].push_back(serial);
    } else if (!answer.ok()) {
      Refuse(serial,
             fmt::format("bootstrap server {} cannot be asked for engine {}: {}", bootstrap_address, engine_id,
                         Message(answer.status())),
             now, actions);
    } else if (Names(*answer, engine_id)) {
      again.requests.push_back(serial);
    } else {
      Refuse(serial,
             fmt::format("bootstrap server {} does not know engine {}; it may have been restarted under "
                         "another id",
                         bootstrap_address, engine_id),
             now, actions);
    }
  }
  if (!again.requests.empty()) asking_.emplace(bootstrap_address, std::move(again));
  for (const auto& [engine_id, serials] : known) SendPulls(engine_id, serials, now, actions);
  return actions;
}

void Consumer::SendPulls(const std::string& engine_id, const std::vector<Serial>& serials, MonotonicTime now,
                         ConsumerActions& actions) {
  const EngineDirectory::Engine* engine = engines_.Find(engine_id);
  const absl::Status agreed = CheckLeases(*engine, serials, actions);
  if (!agreed.ok()) {
    for (const Serial serial : serials) FailAndRelease(serial, Message(agreed), now, actions);
  }
  const absl::StatusOr<std::vector<std::string>> addresses = FindWorkers(*engine);
  absl::Status sent = addresses.status();
  std::span<const Serial> left = serials;
  while (sent.ok() && !left.empty()) {
    const absl::StatusOr<size_t> count = SendMessage(*engine, *addresses, left, now, actions);
    sent = count.status();
    if (count.ok()) left = left.subspan(*count);
  }
  if (agreed.ok() && sent.ok()) return;
  actions.warnings.push_back(
      fmt::format("nothing is pulled from engine {}: {}", engine_id, Message(agreed.ok() ? sent : agreed)));
  engines_.Evict(engine_id, engine->generation);  // Its setting may be another the next time.
  for (const Serial serial : left) Refuse(serial, Message(sent), now, actions);
}

absl::Status Consumer::CheckLeases(const EngineDirectory::Engine& engine, const std::vector<Serial>& serials,
                                   ConsumerActions& actions) {
  const RegisteredEngine& registered = engine.registered;
  absl::Status agreed = CheckLeaseAgreement(registered.kv_lease_duration, options_.worker.kv_lease_duration);
  if (agreed.ok()) return agreed;
  ++stats_.lease_mismatches;
  std::vector<std::string> ids;
  for (size_t i = 0; i < std::min(serials.size(), kMismatchIdsMax); ++i) {
    ids.push_back(requests_.at(serials[i]).order.transfer_id);
  }
  actions.mismatches.push_back(
      {registered.engine_id, registered.kv_lease_duration, options_.worker.kv_lease_duration, std::move(ids)});
  return agreed;
}

absl::StatusOr<std::vector<std::string>> Consumer::FindWorkers(const EngineDirectory::Engine& engine) const {
  TENURE_ASSIGN_OR_RETURN(const std::vector<PeerRank> workers, PrefillWorkersOf(rank_, engine.tp_size, engine.pp_size));
  std::vector<std::string> addresses;
  for (const PeerRank& worker : workers) {
    addresses.push_back(engine.registered.addresses.at(worker.tp_rank).at(worker.pp_rank));
  }
  return addresses;
}

absl::StatusOr<size_t> Consumer::SendMessage(const EngineDirectory::Engine& engine,
                                             const std::vector<std::string>& addresses, std::span<const Serial> serials,
                                             MonotonicTime now, ConsumerActions& actions) {
  Channel channel;
  channel.engine_id = engine.registered.engine_id;
  channel.generation = engine.generation;
  channel.deadline = now;
  channel.hold_after_error = engine.registered.tp_size ? absl::ZeroDuration() : options_.late_write_max;
  Pull pull = options_.worker;
  // The ids of one message differ, while a release-only pull may have the id of a request that is pulled.
  for (const Serial serial : serials.first(std::min(serials.size(), kPullRequestsMax))) {
    const Request& request = requests_.at(serial);
    if (!channel.open.emplace(request.order.request_id, serial).second) break;
    pull.requests.push_back({request.order.request_id, request.order.transfer_id, request.order.blocks});
    channel.deadline = std::max(channel.deadline, request.timer);
  }
  pull.answer_within = absl::ToDoubleSeconds(channel.deadline - now);
  TENURE_ASSIGN_OR_RETURN(const std::string bytes, EncodePull(pull));
  for (const std::string& address : addresses) {
    last_channel_ = ChannelId(last_channel_.value() + 1);
    channel.address = address;
    for (const auto& [request_id, serial] : channel.open) requests_.at(serial).open.push_back(last_channel_);
    channels_.emplace(last_channel_, channel);
    actions.sends.push_back({last_channel_, address, bytes, channel.deadline});
    ++stats_.pulls;
  }
  return channel.open.size();
}

ConsumerActions Consumer::OnReply(ChannelId channel, std::string_view message, MonotonicTime now) {
  ConsumerActions actions;
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return actions;
  const absl::StatusOr<Reply> reply = DecodeReply(message);
  if (!reply.ok()) {
    ++stats_.malformed_replies;
    actions.closes.push_back(channel);
    LoseChannel(channel, Message(reply.status()), options_.late_write_max, now, actions);
    return actions;
  }
  ApplyReply(found->second, channel, *reply, now, actions);
  if (reply->status == ReplyStatus::kContinue && !found->second.open.empty()) return actions;
  actions.closes.push_back(channel);
  channels_.erase(found);
  return actions;
}

void Consumer::ApplyReply(Channel& channel, ChannelId id, const Reply& reply, MonotonicTime now,
                          ConsumerActions& actions) {
  const MonotonicTime after_error =
      channel.hold_after_error > absl::ZeroDuration() ? now + channel.hold_after_error : MonotonicTime::Min();
  const auto take = [&](std::string_view request_id) -> std::optional<Serial> {
    const auto found = channel.open.find(request_id);
    if (found == channel.open.end()) return std::nullopt;  // P may say anything; only what was asked counts.
    const Serial serial = found->second;
    channel.open.erase(found);
    return serial;
  };
  const auto fail = [&](Serial serial, std::string_view error) {
    SetError(requests_.at(serial), error);
    Settle(serial, id, after_error, now, actions);
  };
  const std::string error = reply.err_message.value_or("the prefill worker gives no reason");
  for (const std::string& request_id : reply.err_requests) {
    if (const std::optional<Serial> serial = take(request_id)) fail(*serial, error);
  }
  for (const std::string& request_id : reply.ok_requests) {
    if (const std::optional<Serial> serial = take(request_id)) {
      Settle(*serial, id, MonotonicTime::Min(), now, actions);
    }
  }
  if (reply.status == ReplyStatus::kContinue) return;
  for (const auto& [request_id, serial] : std::exchange(channel.open, {})) {
    fail(serial, reply.status == ReplyStatus::kError
                     ? error
                     : "the prefill worker has finished the pull without a word on this request");
  }
}

ConsumerActions Consumer::OnNotSent(ChannelId channel, std::string_view why, MonotonicTime now) {
  ConsumerActions actions;
  if (channels_.contains(channel)) LoseChannel(channel, why, std::nullopt, now, actions);
  return actions;
}

ConsumerActions Consumer::OnChannelFailed(ChannelId channel, std::string_view why, MonotonicTime now) {
  ConsumerActions actions;
  if (channels_.contains(channel)) LoseChannel(channel, why, options_.late_write_max, now, actions);
  return actions;
}

void Consumer::LoseChannel(ChannelId id, std::string_view why, std::optional<absl::Duration> late_write_for,
                           MonotonicTime now, ConsumerActions& actions) {
  ++stats_.lost_channels;
  const auto found = channels_.find(id);
  const Channel channel = std::move(found->second);
  channels_.erase(found);
  engines_.Evict(channel.engine_id, channel.generation);
  for (const auto& [request_id, serial] : channel.open) {
    Request& request = requests_.at(serial);
    SetError(request, fmt::format("a worker of engine {} is lost: {}", channel.engine_id, why));
    if (late_write_for) Hold(request, channel, channel.deadline + *late_write_for, now, actions);
    Settle(serial, id, MonotonicTime::Min(), now, actions);
  }
}

void Consumer::Hold(Request& request, const Channel& channel, MonotonicTime safe_at, MonotonicTime now,
                    ConsumerActions& actions) {
  MonotonicTime& held = request.lost.try_emplace(channel.address, MonotonicTime::Min()).first->second;
  held = std::max(held, safe_at);
  // What a stock P's end says of its writes is not known.
  if (channel.hold_after_error > absl::ZeroDuration() || !watched_.insert(channel.address).second) return;
  if (watched_.size() == 1) next_look_ = now + options_.look_interval;
  actions.looks.push_back(channel.address);
}

MonotonicTime Consumer::SafeAt(const Request& request) {
  MonotonicTime safe_at = request.safe_at;
  for (const auto& [address, until] : request.lost) safe_at = std::max(safe_at, until);
  return safe_at;
}

ConsumerActions Consumer::OnWorkerGone(std::string_view address, MonotonicTime now) {
  const auto watched = watched_.find(address);
  if (watched == watched_.end()) return {};
  ++stats_.ended_workers;
  for (auto& [serial, request] : requests_) {
    const auto lost = request.lost.find(*watched);
    if (lost == request.lost.end()) continue;
    lost->second = std::min(lost->second, now + options_.late_write_max);
    if (request.open.empty()) SetTimer(serial, SafeAt(request));
  }
  watched_.erase(watched);
  return {};
}

void Consumer::LookAgain(MonotonicTime now, ConsumerActions& actions) {
  std::set<std::string, std::less<>> hold;
  for (const auto& [serial, request] : requests_) {
    for (const auto& [address, until] : request.lost) {
      if (until > now + options_.late_write_max && watched_.contains(address)) hold.insert(address);
    }
  }
  watched_ = std::move(hold);
  next_look_ = now + options_.look_interval;
  actions.looks.insert(actions.looks.end(), watched_.begin(), watched_.end());
}

void Consumer::LoseOldChannels(const std::string& engine_id, MonotonicTime now, ConsumerActions& actions) {
  const EngineDirectory::Engine* engine = engines_.Find(engine_id);
  std::vector<ChannelId> old;
  for (const auto& [id, channel] : channels_) {
    if (channel.engine_id == engine_id && (engine == nullptr || channel.generation != engine->generation)) {
      old.push_back(id);
    }
  }
  for (const ChannelId id : old) {
    actions.closes.push_back(id);
    LoseChannel(id, "the engine has been started again", options_.late_write_max, now, actions);
  }
}

void Consumer::Settle(Serial serial, ChannelId channel, MonotonicTime safe_at, MonotonicTime now,
                      ConsumerActions& actions) {
  Request& request = requests_.at(serial);
  std::erase(request.open, channel);
  request.safe_at = std::max(request.safe_at, safe_at);
  if (request.open.empty()) return Conclude(serial, now, actions);
  if (request.error) TellFailing(request, actions);
}

void Consumer::SetError(Request& request, std::string_view error) {
  if (!request.error) request.error = error;
}

void Consumer::Refuse(Serial serial, std::string_view error, MonotonicTime now, ConsumerActions& actions) {
  SetError(requests_.at(serial), error);
  Conclude(serial, now, actions);
}

void Consumer::FailAndRelease(Serial serial, std::string_view error, MonotonicTime now, ConsumerActions& actions) {
  Request& request = requests_.at(serial);
  if (IsReleaseOnly(request.order)) return;
  by_id_.erase(request.order.request_id);
  ++stats_.failed_receives;
  actions.failed.push_back({request.order.request_id, std::string(error), std::exchange(request.order.blocks, {})});
  SetTimer(serial, std::max(request.timer, now + options_.release_timeout_min));
}

void Consumer::GiveUp(Serial serial, MonotonicTime now, ConsumerActions& actions) {
  Request& request = requests_.at(serial);
  SetError(request, request.open.empty() ? fmt::format("the workers of engine {} were not all registered at {} in time",
                                                       request.order.engine_id, request.order.bootstrap_address)
                                         : fmt::format("engine {} did not answer for transfer {} in time",
                                                       request.order.engine_id, request.order.transfer_id));
  for (const ChannelId id : std::exchange(request.open, {})) {
    const auto found = channels_.find(id);
    Channel& channel = found->second;
    Hold(request, channel, channel.deadline + options_.late_write_max, now, actions);
    engines_.Evict(channel.engine_id, channel.generation);
    channel.open.erase(request.order.request_id);
    if (!channel.open.empty()) continue;
    ++stats_.lost_channels;
    actions.closes.push_back(id);
    channels_.erase(found);
  }
  Conclude(serial, now, actions);
}

void Consumer::Conclude(Serial serial, MonotonicTime now, ConsumerActions& actions) {
  const auto found = requests_.find(serial);
  Request& request = found->second;
  const bool release_only = IsReleaseOnly(request.order);
  if (const MonotonicTime safe_at = SafeAt(request); request.error && safe_at > now && !release_only) {
    TellFailing(request, actions);
    return SetTimer(serial, safe_at);
  }
  if (!release_only) {
    by_id_.erase(request.order.request_id);
    ++(request.error ? stats_.failed_receives : stats_.received);
    if (request.error) {
      actions.failed.push_back({request.order.request_id, *std::move(request.error), std::move(request.order.blocks)});
    } else {
      actions.received.push_back(request.order.request_id);
    }
  }
  timers_.erase({request.timer, serial});
  requests_.erase(found);
}

void Consumer::TellFailing(Request& request, ConsumerActions& actions) {
  if (request.told || IsReleaseOnly(request.order)) return;
  request.told = true;
  actions.failing.push_back({request.order.request_id, *request.error});
}

void Consumer::SetTimer(Serial serial, MonotonicTime at) {
  Request& request = requests_.at(serial);
  timers_.erase({request.timer, serial});
  request.timer = at;
  timers_.emplace(at, serial);
}

ConsumerActions Consumer::Tick(MonotonicTime now) {
  ConsumerActions actions;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Serial serial = timers_.begin()->second;
    const Request& request = requests_.at(serial);
    if (request.open.empty() && request.error) {
      Conclude(serial, now, actions);
    } else {
      GiveUp(serial, now, actions);
    }
  }
  if (!watched_.empty() && next_look_ <= now) LookAgain(now, actions);
  for (auto& [address, asking] : asking_) {
    if (asking.in_flight || asking.retry_at > now) continue;
    asking.in_flight = true;
    actions.queries.push_back(address);
  }
  return actions;
}

MonotonicTime Consumer::NextTick() const {
  MonotonicTime next = timers_.empty() ? MonotonicTime::Max() : timers_.begin()->first;
  if (!watched_.empty() && !requests_.empty()) next = std::min(next, next_look_);
  for (const auto& [address, asking] : asking_) {
    if (!asking.in_flight) next = std::min(next, asking.retry_at);
  }
  return next;
}

ConsumerStats Consumer::TakeStats() { return std::exchange(stats_, ConsumerStats()); }

}  // namespace tenure::pd
