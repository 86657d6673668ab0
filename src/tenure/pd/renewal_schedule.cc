#include "tenure/pd/renewal_schedule.h"

#include <set>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

using TransfersByEngine = std::map<std::string_view, std::set<std::string_view>>;

std::vector<RenewalSchedule::Batch> CutIntoBatches(const TransfersByEngine& engines) {
  std::vector<RenewalSchedule::Batch> batches;
  for (const auto& [engine_id, transfer_ids] : engines) {
    size_t in_batch = kRenewalIdsPerMessage;
    for (const std::string_view transfer_id : transfer_ids) {
      if (in_batch == kRenewalIdsPerMessage) {
        batches.push_back({std::string(engine_id), {}});
        in_batch = 0;
      }
      batches.back().transfer_ids.emplace_back(transfer_id);
      ++in_batch;
    }
  }
  return batches;
}

bool IsTime(absl::Duration duration) { return duration > absl::ZeroDuration() && duration < absl::InfiniteDuration(); }

}  // namespace

absl::StatusOr<RenewalSchedule> RenewalSchedule::Create(const RenewalScheduleOptions& options, MonotonicTime now) {
  if (!IsTime(options.lease)) {
    return InvalidArgument("lease is {} s; use a finite time above 0", absl::ToDoubleSeconds(options.lease));
  }
  if (options.renew_without_step && !IsTime(*options.renew_without_step)) {
    return InvalidArgument("renew_without_step is {} s; use a finite time above 0",
                           absl::ToDoubleSeconds(*options.renew_without_step));
  }
  return RenewalSchedule(options, now);
}

absl::Status RenewalSchedule::Track(std::string_view request_id, std::string_view transfer_id,
                                    std::string_view engine_id, MonotonicTime deadline) {
  TENURE_RETURN_IF_ERROR(CheckText("transfer_id", transfer_id));
  const auto found = tracked_.find(request_id);
  if (found == tracked_.end() && tracked_.size() >= options_.requests_max) {
    return ResourceExhausted("request {} is not renewed: {} requests are, the maximum", request_id, tracked_.size());
  }
  tracked_.insert_or_assign(std::string(request_id),
                            Tracked{std::string(transfer_id), std::string(engine_id), deadline});
  return absl::OkStatus();
}

void RenewalSchedule::Stop(std::string_view request_id) {
  const auto found = tracked_.find(request_id);
  if (found != tracked_.end()) tracked_.erase(found);
}

void RenewalSchedule::Stepped(MonotonicTime now) {
  last_step_ = now;
  idle_ = false;
  silent_ = false;
}

RenewalSchedule::Round RenewalSchedule::TakeRound(MonotonicTime now) {
  Round round;
  if (now < next_round_) return round;
  next_round_ = now + options_.lease / 6;
  for (auto tracked = tracked_.begin(); tracked != tracked_.end();) {
    if (tracked->second.deadline > now) {
      ++tracked;
      continue;
    }
    round.given_up.push_back(tracked->first);
    tracked = tracked_.erase(tracked);
  }
  if (tracked_.empty()) return round;  // An engine without requests takes no step, and hangs no more than it works.
  if (!idle_ && now - last_step_ >= options_.renew_without_step.value_or(options_.lease * 10)) {
    round.fell_silent = !std::exchange(silent_, true);
    return round;
  }
  TransfersByEngine engines;
  for (const auto& [request_id, tracked] : tracked_) engines[tracked.engine_id].insert(tracked.transfer_id);
  round.batches = CutIntoBatches(engines);
  return round;
}

}  // namespace tenure::pd
