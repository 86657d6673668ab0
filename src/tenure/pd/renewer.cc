#include "tenure/pd/renewer.h"

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"

namespace tenure::pd {
namespace {

std::set<std::string_view> AllOf(const std::vector<std::vector<std::string>>& round) {
  std::set<std::string_view> ids;
  for (const std::vector<std::string>& batch : round) ids.insert(batch.begin(), batch.end());
  return ids;
}

}  // namespace

absl::StatusOr<Renewer> Renewer::Create(const RenewerOptions& options) {
  if (options.lease <= absl::ZeroDuration() || options.lease == absl::InfiniteDuration()) {
    return InvalidArgument("lease is {} s; use a finite time above 0", absl::ToDoubleSeconds(options.lease));
  }
  if (options.engines_max == 0) return InvalidArgument("engines_max is 0; use 1 or more");
  return Renewer(options);
}

void Renewer::Locate(std::string_view engine_id, std::string_view bootstrap_address) {
  auto engine = engines_.find(engine_id);
  if (engine == engines_.end()) engine = engines_.emplace(engine_id, Engine()).first;
  engine->second.bootstrap_address = bootstrap_address;
}

RenewerActions Renewer::Renew(const std::vector<RenewalSchedule::Batch>& batches, MonotonicTime now) {
  RenewerActions actions;
  TakeRound(batches);
  for (auto& [engine_id, engine] : engines_) {
    if (engine.round.empty() || engine.refuses) continue;
    if (directory_.Find(engine_id) != nullptr) {
      StartRound(engine_id, engine, now, actions);
    } else if (engine.bootstrap_address.empty()) {
      WarnOnce(engine, fmt::format("engine {}: renewals need its bootstrap address", engine_id), actions);
    } else if (asking_.insert(engine.bootstrap_address).second) {
      actions.queries.push_back(engine.bootstrap_address);
    }
  }
  return actions;
}

void Renewer::TakeRound(const std::vector<RenewalSchedule::Batch>& batches) {
  for (auto& [engine_id, engine] : engines_) engine.round.clear();
  for (const RenewalSchedule::Batch& batch : batches) engines_[batch.engine_id].round.push_back(batch.transfer_ids);
  for (auto& [engine_id, engine] : engines_) {
    const std::set<std::string_view> renewed = AllOf(engine.round);
    const auto forget = [&renewed](const std::string& id) { return !renewed.contains(id); };
    std::erase_if(engine.gone, forget);
    for (auto& [rank, worker] : engine.workers) {
      std::erase_if(worker.held, forget);
      worker.unsent = 0;
    }
  }
  // An engine that nothing is wanted from costs nothing but its name; beyond the maximum it goes.
  for (auto engine = engines_.begin(); engines_.size() > options_.engines_max && engine != engines_.end();) {
    engine = engine->second.round.empty() ? engines_.erase(engine) : std::next(engine);
  }
}

void Renewer::StartRound(const std::string& engine_id, Engine& engine, MonotonicTime now, RenewerActions& actions) {
  if (engine.refuses) return;
  const RegisteredEngine& registered = directory_.Find(engine_id)->registered;
  const double ours = absl::ToDoubleSeconds(options_.lease);
  const absl::Status agreed = CheckLeaseAgreement(registered.kv_lease_duration, ours);
  if (!agreed.ok()) {
    ++stats_.lease_mismatches;
    return Refuse(engine_id, Message(agreed), actions);
  }
  std::erase_if(engine.silent, [&](Rank rank) {
    const auto stages = registered.addresses.find(rank.first);
    return stages == registered.addresses.end() || !stages->second.contains(rank.second);
  });
  for (const auto& [tp_rank, stages] : registered.addresses) {
    for (const auto& [pp_rank, address] : stages) {
      Worker& worker = engine.workers[{tp_rank, pp_rank}];
      worker.address = address;
      worker.unsent = engine.round.size();
      if (!worker.channel) SendNext(engine_id, engine, {tp_rank, pp_rank}, now, actions);
    }
  }
}

void Renewer::SendNext(const std::string& engine_id, Engine& engine, Rank rank, MonotonicTime now,
                       RenewerActions& actions) {
  Worker& worker = engine.workers.at(rank);
  const EngineDirectory::Engine* known = directory_.Find(engine_id);
  if (worker.unsent == 0 || engine.refuses || known == nullptr) return;
  --worker.unsent;
  Renewal renewal;
  renewal.transfer_ids = engine.round[worker.next_batch++ % engine.round.size()];
  renewal.kv_lease_duration = absl::ToDoubleSeconds(options_.lease);
  absl::StatusOr<std::string> bytes = EncodeRenewal(renewal);
  if (!bytes.ok()) {
    actions.warnings.push_back(fmt::format("engine {}: {}", engine_id, Message(bytes.status())));
    return;
  }
  last_channel_ = ChannelId(last_channel_.value() + 1);
  worker.channel = last_channel_;
  ++stats_.sent;
  const MonotonicTime deadline = now + options_.lease / 6;
  actions.sends.push_back({last_channel_, worker.address, *std::move(bytes), deadline});
  channels_.emplace(last_channel_,
                    Channel{engine_id, rank, known->generation, std::move(renewal.transfer_ids), deadline});
}

RenewerActions Renewer::OnQueryAnswer(std::string_view bootstrap_address,
                                      const absl::StatusOr<std::map<int64_t, RegisteredEngine>>& answer,
                                      MonotonicTime now) {
  RenewerActions actions;
  const auto asked = asking_.find(bootstrap_address);
  if (asked == asking_.end()) return actions;
  asking_.erase(asked);
  if (!answer.ok()) {
    ++stats_.failed_queries;
    for (auto& [engine_id, engine] : engines_) {
      if (engine.bootstrap_address != bootstrap_address || engine.round.empty()) continue;
      WarnOnce(
          engine,
          fmt::format("renewals do not reach engine {}, each round tries again: bootstrap server {} cannot be asked: "
                      "{}",
                      engine_id, bootstrap_address, Message(answer.status())),
          actions);
    }
    return actions;
  }
  for (const std::string& engine_id : directory_.Learn(*answer)) {
    if (const auto engine = engines_.find(engine_id); engine != engines_.end()) engine->second.refuses = false;
  }
  for (auto& [engine_id, engine] : engines_) {
    if (engine.bootstrap_address != bootstrap_address || engine.round.empty()) continue;
    if (directory_.Find(engine_id) != nullptr) {
      StartRound(engine_id, engine, now, actions);
    } else {
      WarnOnce(
          engine,
          fmt::format("renewals do not reach engine {}, each round tries again: bootstrap server {} does not know all "
                      "of its workers",
                      engine_id, bootstrap_address),
          actions);
    }
  }
  return actions;
}

RenewerActions Renewer::OnReply(ChannelId id, std::string_view message, MonotonicTime now) {
  RenewerActions actions;
  if (!channels_.contains(id)) return actions;
  const absl::StatusOr<Reply> reply = DecodeReply(message);
  if (reply.ok() && reply->status == ReplyStatus::kContinue) return actions;  // Not the answer to a renewal.
  actions.closes.push_back(id);
  if (!reply.ok()) {
    Lose(id, Message(reply.status()), actions);
    return actions;
  }
  const Channel channel = Take(id);
  if (reply->status == ReplyStatus::kError) {
    Refuse(channel.engine_id, reply->err_message.value_or("it gives no reason"), actions);
    return actions;
  }
  Answered(channel, actions);
  ApplyHeld(channel, reply->unknown_transfer_ids, actions);
  if (FindWorker(channel) != nullptr) {
    SendNext(channel.engine_id, engines_.at(channel.engine_id), channel.rank, now, actions);
  }
  return actions;
}

void Renewer::ApplyHeld(const Channel& channel, const std::vector<std::string>& unknown, RenewerActions& actions) {
  Worker* worker = FindWorker(channel);
  if (worker == nullptr) return;
  Engine& engine = engines_.at(channel.engine_id);
  const std::set<std::string_view> renewed = AllOf(engine.round);
  const std::set<std::string_view> not_held(unknown.begin(), unknown.end());
  for (const std::string& transfer_id : channel.transfer_ids) {
    if (!renewed.contains(transfer_id)) continue;  // A later round goes without it.
    if (!not_held.contains(transfer_id)) {
      worker->held.insert(transfer_id);
    } else if (worker->held.erase(transfer_id) > 0 && engine.gone.insert(transfer_id).second) {
      ++stats_.gone_transfers;
      actions.gone.push_back({channel.engine_id, transfer_id});
    }
  }
}

void Renewer::Refuse(const std::string& engine_id, std::string_view why, RenewerActions& actions) {
  const auto engine = engines_.find(engine_id);
  if (engine == engines_.end() || engine->second.refuses) return;
  engine->second.refuses = true;
  ++stats_.refusing_engines;
  actions.warnings.push_back(
      fmt::format("engine {} takes no renewals and gets no more; it holds KV for its own time: {}", engine_id, why));
}

RenewerActions Renewer::OnChannelFailed(ChannelId channel, std::string_view why, MonotonicTime) {
  RenewerActions actions;
  if (channels_.contains(channel)) Lose(channel, why, actions);
  return actions;
}

void Renewer::Lose(ChannelId id, std::string_view why, RenewerActions& actions) {
  ++stats_.lost;
  const Channel channel = Take(id);
  directory_.Evict(channel.engine_id, channel.generation);
  Worker* worker = FindWorker(channel);
  if (worker == nullptr) return;
  worker->unsent = 0;
  Engine& engine = engines_.find(channel.engine_id)->second;
  engine.silent.insert(channel.rank);
  WarnOnce(
      engine,
      fmt::format("renewals do not reach engine {}, each round tries again: one of {} transfers to tensor rank {}, "
                  "pipeline rank {} has no answer: {}",
                  channel.engine_id, channel.transfer_ids.size(), channel.rank.first, channel.rank.second, why),
      actions);
}

void Renewer::WarnOnce(Engine& engine, std::string warning, RenewerActions& actions) {
  if (!std::exchange(engine.unreached, true)) actions.warnings.push_back(std::move(warning));
}

void Renewer::Answered(const Channel& channel, RenewerActions& actions) {
  if (FindWorker(channel) == nullptr) return;
  Engine& engine = engines_.find(channel.engine_id)->second;
  engine.silent.erase(channel.rank);
  if (!engine.silent.empty() || !std::exchange(engine.unreached, false)) return;
  actions.warnings.push_back(fmt::format("renewals reach engine {} again", channel.engine_id));
}

RenewerStats Renewer::TakeStats() { return std::exchange(stats_, {}); }

Renewer::Channel Renewer::Take(ChannelId id) {
  const auto found = channels_.find(id);
  Channel channel = std::move(found->second);
  channels_.erase(found);
  if (Worker* worker = FindWorker(channel); worker != nullptr && worker->channel == id) worker->channel.reset();
  return channel;
}

Renewer::Worker* Renewer::FindWorker(const Channel& channel) {
  const auto engine = engines_.find(channel.engine_id);
  if (engine == engines_.end()) return nullptr;
  const auto worker = engine->second.workers.find(channel.rank);
  return worker == engine->second.workers.end() ? nullptr : &worker->second;
}

RenewerActions Renewer::Tick(MonotonicTime now) {
  RenewerActions actions;
  std::vector<ChannelId> late;
  for (const auto& [id, channel] : channels_) {
    if (channel.deadline <= now) late.push_back(id);
  }
  for (const ChannelId id : late) {
    actions.closes.push_back(id);
    Lose(id, "it took longer than a sixth of the lease", actions);
  }
  return actions;
}

MonotonicTime Renewer::NextTick() const {
  MonotonicTime next = MonotonicTime::Max();
  for (const auto& [id, channel] : channels_) next = std::min(next, channel.deadline);
  return next;
}

}  // namespace tenure::pd
