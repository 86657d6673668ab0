#include "tenure/handoff/renewal_sender.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::handoff {

absl::StatusOr<std::unique_ptr<RenewalSender>> RenewalSender::Start(const RenewalSenderOptions& options,
                                                                    const Clock& clock) {
  TENURE_ASSIGN_OR_RETURN(pd::RenewalSchedule schedule, pd::RenewalSchedule::Create(options.schedule, clock.Now()));
  TENURE_ASSIGN_OR_RETURN(pd::Renewer renewer,
                          pd::Renewer::Create({.lease = options.schedule.lease, .engines_max = options.engines_max}));
  std::unique_ptr<RenewalSender> sender(new RenewalSender(options, std::move(schedule), std::move(renewer), clock));
  TENURE_ASSIGN_OR_RETURN(sender->links_, DecodeLinks::Create(options.links, clock));
  RenewalSender* raw = sender.get();
  DecodeLinks::Events events;
  events.on_answer = [raw](pd::ChannelId channel, const std::string& answer) {
    raw->Handle([&](pd::Renewer& core, MonotonicTime now) { return core.OnReply(channel, answer, now); });
  };
  events.on_channel_failed = [raw](pd::ChannelId channel, const std::string& why) {
    raw->Handle([&](pd::Renewer& core, MonotonicTime now) { return core.OnChannelFailed(channel, why, now); });
  };
  events.on_not_sent = events.on_channel_failed;  // The next round is the retry of both.
  events.on_query_answer = [raw](const std::string& url, const absl::StatusOr<RegisteredEngines>& engines) {
    raw->Handle([&](pd::Renewer& core, MonotonicTime now) { return core.OnQueryAnswer(url, engines, now); });
  };
  events.on_time = [raw](MonotonicTime now) { return raw->OnTime(now); };
  sender->links_->Start(std::move(events));
  return sender;
}

RenewalSender::RenewalSender(const RenewalSenderOptions& options, pd::RenewalSchedule schedule, pd::Renewer renewer,
                             const Clock& clock)
    : silent_after_(options.schedule.renew_without_step.value_or(options.schedule.lease * 10)),
      clock_(clock),
      log_(clock, "renewals"),
      schedule_(std::move(schedule)),
      renewer_(std::move(renewer)) {}

RenewalSender::~RenewalSender() = default;

absl::Status RenewalSender::Track(std::string_view request_id, std::string_view transfer_id, std::string_view engine_id,
                                  std::string_view bootstrap_address, absl::Duration remaining) {
  MutexLock lock(mutex_);
  TENURE_RETURN_IF_ERROR(schedule_.Track(request_id, transfer_id, engine_id, clock_.Now() + remaining));
  renewer_.Locate(engine_id, bootstrap_address);
  schedule_.Stepped(clock_.Now());
  return absl::OkStatus();
}

void RenewalSender::Stop(std::string_view request_id) {
  MutexLock lock(mutex_);
  schedule_.Stop(request_id);
}

void RenewalSender::Stepped() {
  MutexLock lock(mutex_);
  schedule_.Stepped(clock_.Now());
}

void RenewalSender::WentIdle() {
  MutexLock lock(mutex_);
  schedule_.WentIdle();
}

std::vector<pd::RenewerActions::Gone> RenewalSender::TakeGone() {
  MutexLock lock(mutex_);
  return std::exchange(gone_, {});
}

pd::RenewerStats RenewalSender::TakeStats() {
  MutexLock lock(mutex_);
  return renewer_.TakeStats();
}

size_t RenewalSender::num_tracked() {
  MutexLock lock(mutex_);
  return schedule_.num_tracked();
}

MonotonicTime RenewalSender::NextTime() { return std::min(schedule_.NextRound(), renewer_.NextTick()); }

MonotonicTime RenewalSender::OnTime(MonotonicTime now) {
  pd::RenewalSchedule::Round round;
  bool tick = false;
  {
    MutexLock lock(mutex_);
    round = schedule_.TakeRound(now);
    tick = renewer_.NextTick() <= now;
  }
  if (round.fell_silent) {
    LogWarning(
        "renewals: the scheduler has taken no step for {:.1f} s and has not said that it is idle: renewals stop until "
        "it steps again, and the prefill engines free what this engine waits for",
        absl::ToDoubleSeconds(silent_after_));
  }
  if (tick) Handle([](pd::Renewer& core, MonotonicTime at) { return core.Tick(at); });
  if (!round.batches.empty()) {
    Handle([&](pd::Renewer& core, MonotonicTime at) { return core.Renew(round.batches, at); });
  }
  MutexLock lock(mutex_);
  return NextTime();
}

template <typename Event>
void RenewalSender::Handle(Event event) {
  pd::RenewerActions actions;
  {
    MutexLock lock(mutex_);
    actions = event(renewer_, clock_.Now());
    std::move(actions.gone.begin(), actions.gone.end(), std::back_inserter(gone_));
  }
  CarryOut(std::move(actions));
}

void RenewalSender::CarryOut(pd::RenewerActions actions) {
  links_->CarryOut(actions.queries, std::move(actions.sends), actions.closes);
  log_.Warn(actions.warnings);
}

}  // namespace tenure::handoff
