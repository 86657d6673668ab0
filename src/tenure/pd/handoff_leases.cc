#include "tenure/pd/handoff_leases.h"

#include <algorithm>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

absl::Status CheckDuration(std::string_view what, absl::Duration duration) {
  if (duration > absl::ZeroDuration() && duration < absl::InfiniteDuration()) return absl::OkStatus();
  return InvalidArgument("{} is {} s; use a finite time above 0", what, absl::ToDoubleSeconds(duration));
}

}  // namespace

absl::StatusOr<HandoffLeases> HandoffLeases::Create(const HandoffOptions& options) {
  if (options.lease) TENURE_RETURN_IF_ERROR(CheckDuration("lease", *options.lease));
  TENURE_RETURN_IF_ERROR(CheckDuration("hold_timeout", options.hold_timeout));
  if (options.transfers_max == 0 || options.waiters_max == 0 || options.remembered_max == 0) {
    return InvalidArgument("transfers_max is {}, waiters_max {}, remembered_max {}; use 1 or more",
                           options.transfers_max, options.waiters_max, options.remembered_max);
  }
  return HandoffLeases(options);
}

absl::Status HandoffLeases::Announce(std::string_view transfer_id, std::string_view request_id) {
  if (transfer_id.empty() || request_id.empty()) {
    return InvalidArgument("transfer_id is '{}' and request_id '{}'; neither may be empty", transfer_id, request_id);
  }
  size_t slot = FindSlot(transfer_id);
  if (slot != kNoSlot && !entries_[slot].request_id.empty()) {
    if (entries_[slot].request_id == request_id) return absl::OkStatus();
    return InvalidArgument(
        "transfer_id {} of request {} is request {}'s; give each request an id of its own (n is 1, one prompt)",
        transfer_id, request_id, entries_[slot].request_id);
  }
  if (slot == kNoSlot) {
    if (by_id_.size() >= options_.transfers_max) {
      return ResourceExhausted("transfer {}: {} are held, the maximum; retry when some are freed", transfer_id,
                               by_id_.size());
    }
    slot = AddSlot(transfer_id);
  }
  entries_[slot].request_id = request_id;
  ended_.Forget(transfer_id);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WaiterId>> HandoffLeases::Finish(std::string_view transfer_id, std::string_view request_id,
                                                            HandoffBlocks blocks, MonotonicTime now) {
  const size_t slot = FindSlot(transfer_id);
  if (slot == kNoSlot || entries_[slot].ready || entries_[slot].request_id != request_id) {
    return FailedPrecondition("transfer {} is not announced by request {}; free its blocks", transfer_id, request_id);
  }
  Entry& entry = entries_[slot];
  entry.ready = true;
  entry.blocks = std::move(blocks);
  entry.deadline = now + options_.lease.value_or(options_.hold_timeout);
  std::vector<WaiterId> waiters = TakeWaiters(entry);
  UpdateDue(slot);
  return waiters;
}

std::vector<WaiterId> HandoffLeases::Abandon(std::string_view transfer_id, std::string_view request_id,
                                             MonotonicTime now) {
  const size_t slot = FindSlot(transfer_id);
  std::vector<WaiterId> waiters;
  if (slot != kNoSlot) {
    Entry& entry = entries_[slot];
    if (entry.ready || (!entry.request_id.empty() && entry.request_id != request_id)) return waiters;
    waiters = TakeWaiters(entry);
    DropSlot(slot);
  } else if (ended_.Find(transfer_id)) {
    return waiters;  // The first end is the reason that D is told.
  }
  ended_.Remember(transfer_id, HandoffEnd::kAborted, now);
  return waiters;
}

HandoffLeases::PullAnswer HandoffLeases::Pull(std::string_view transfer_id, WaiterId waiter, MonotonicTime now) {
  size_t slot = FindSlot(transfer_id);
  if (slot != kNoSlot && entries_[slot].ready) return {PullState::kReady, std::nullopt};
  if (slot == kNoSlot) {
    if (const auto end = ended_.Find(transfer_id)) return {PullState::kEnded, end};
  }
  if (num_waiters_ >= options_.waiters_max) return {PullState::kFull, std::nullopt};
  if (slot == kNoSlot) {
    if (by_id_.size() >= options_.transfers_max) return {PullState::kFull, std::nullopt};
    slot = AddSlot(transfer_id);
  }
  entries_[slot].waiting.push_back({waiter, now + options_.hold_timeout});
  ++num_waiters_;
  UpdateDue(slot);
  return {PullState::kWaiting, std::nullopt};
}

void HandoffLeases::CancelWait(std::string_view transfer_id, WaiterId waiter) {
  const size_t slot = FindSlot(transfer_id);
  if (slot == kNoSlot) return;
  Entry& entry = entries_[slot];
  num_waiters_ -= std::erase_if(entry.waiting, [&](const Waiting& waiting) { return waiting.waiter == waiter; });
  if (entry.request_id.empty() && entry.waiting.empty()) return DropSlot(slot);
  UpdateDue(slot);
}

const HandoffBlocks* HandoffLeases::FindBlocks(std::string_view transfer_id) const {
  const size_t slot = FindSlot(transfer_id);
  return slot != kNoSlot && entries_[slot].ready ? &entries_[slot].blocks : nullptr;
}

bool HandoffLeases::BeginSend(std::string_view transfer_id, int64_t consumers_needed) {
  TENURE_CHECK(consumers_needed >= 1);
  const size_t slot = FindSlot(transfer_id);
  if (slot == kNoSlot || !entries_[slot].ready) return false;
  Entry& entry = entries_[slot];
  if (entry.consumers_needed == 0) entry.consumers_needed = consumers_needed;
  ++entry.sends_running;
  UpdateDue(slot);
  return true;
}

std::optional<std::string> HandoffLeases::EndSend(std::string_view transfer_id, const HandoffConsumer& consumer,
                                                  bool written, MonotonicTime now) {
  const size_t slot = FindSlot(transfer_id);
  TENURE_CHECK(slot != kNoSlot && entries_[slot].sends_running > 0);
  Entry& entry = entries_[slot];
  --entry.sends_running;
  if (written && std::find(entry.served.begin(), entry.served.end(), consumer) == entry.served.end()) {
    entry.served.push_back(consumer);
  }
  if (entry.sends_running > 0 || static_cast<int64_t>(entry.served.size()) < entry.consumers_needed) {
    UpdateDue(slot);
    return std::nullopt;
  }
  std::string request_id = std::move(entry.request_id);
  ended_.Remember(transfer_id, HandoffEnd::kSent, now);
  DropSlot(slot);
  return request_id;
}

absl::StatusOr<std::vector<std::string>> HandoffLeases::Renew(std::span<const std::string> transfer_ids,
                                                              MonotonicTime now) {
  if (!options_.lease) {
    return FailedPrecondition(
        "this prefill engine holds KV for a fixed time; set kv_lease_duration on it as on the decoder");
  }
  std::vector<std::string> unknown;
  const MonotonicTime extended = now + *options_.lease * 2 / 3;
  for (const std::string& transfer_id : transfer_ids) {
    const size_t slot = FindSlot(transfer_id);
    if (slot == kNoSlot || entries_[slot].request_id.empty()) {
      unknown.push_back(transfer_id);
      continue;
    }
    entries_[slot].deadline = std::max(entries_[slot].deadline, extended);  // Max stays Max before the prefill's end.
    UpdateDue(slot);
  }
  return unknown;
}

HandoffLeases::ScanResult HandoffLeases::Scan(MonotonicTime now) {
  ScanResult result;
  for (size_t slot = 0; slot < due_.size(); ++slot) {
    if (due_[slot] > now || due_[slot] == MonotonicTime::Max()) continue;
    Entry& entry = entries_[slot];
    TakeTimedOut(entry, now, result.timed_out);
    if (entry.ready) {
      result.expired_requests.push_back(std::move(entry.request_id));
      ended_.Remember(entry.transfer_id, HandoffEnd::kExpired, now);
      DropSlot(slot);
    } else if (entry.request_id.empty() && entry.waiting.empty()) {
      DropSlot(slot);
    } else {
      UpdateDue(slot);
    }
  }
  ended_.Prune(now);
  return result;
}

size_t HandoffLeases::FindSlot(std::string_view transfer_id) const {
  const auto found = by_id_.find(transfer_id);
  return found == by_id_.end() ? kNoSlot : found->second;
}

size_t HandoffLeases::AddSlot(std::string_view transfer_id) {
  size_t slot = entries_.size();
  if (free_slots_.empty()) {
    entries_.emplace_back();
    due_.push_back(MonotonicTime::Max());
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  entries_[slot].transfer_id = transfer_id;
  by_id_.emplace(transfer_id, slot);
  return slot;
}

void HandoffLeases::DropSlot(size_t slot) {
  by_id_.erase(entries_[slot].transfer_id);
  num_waiters_ -= entries_[slot].waiting.size();
  entries_[slot] = Entry();
  due_[slot] = MonotonicTime::Max();
  free_slots_.push_back(slot);
}

void HandoffLeases::UpdateDue(size_t slot) {
  const Entry& entry = entries_[slot];
  MonotonicTime due = entry.sends_running > 0 ? MonotonicTime::Max() : entry.deadline;
  if (!entry.waiting.empty()) due = entry.waiting.front().deadline;  // Not ready, so no deadline of its own.
  due_[slot] = due;
}

std::vector<WaiterId> HandoffLeases::TakeWaiters(Entry& entry) {
  std::vector<WaiterId> waiters;
  for (const Waiting& waiting : entry.waiting) waiters.push_back(waiting.waiter);
  num_waiters_ -= entry.waiting.size();
  entry.waiting.clear();
  return waiters;
}

void HandoffLeases::TakeTimedOut(Entry& entry, MonotonicTime now, std::vector<HandoffWaiter>& timed_out) {
  const auto late = std::find_if(entry.waiting.begin(), entry.waiting.end(),
                                 [now](const Waiting& waiting) { return waiting.deadline > now; });
  for (auto waiting = entry.waiting.begin(); waiting != late; ++waiting) {
    timed_out.push_back({entry.transfer_id, waiting->waiter});
  }
  num_waiters_ -= late - entry.waiting.begin();
  entry.waiting.erase(entry.waiting.begin(), late);
}

}  // namespace tenure::pd
