#include "tenure/engine/lookup_answers.h"

#include <algorithm>
#include <iterator>

namespace tenure::engine {
namespace {

// The least time between two renewals of one lease, however short the pool grants it.
constexpr absl::Duration kRenewalPauseMin = absl::Milliseconds(10);

const LookupAnswers::Answer& Miss() {
  static const LookupAnswers::Answer miss = std::make_shared<const kv::Hit>();
  return miss;
}

void MoveInto(std::vector<store::Lease>& leases, std::vector<store::Lease>& into) {
  into.insert(into.end(), std::make_move_iterator(leases.begin()), std::make_move_iterator(leases.end()));
  leases.clear();
}

void CountMiss(connector::LookupOutcome outcome, LookupTotals& totals) {
  if (outcome == connector::LookupOutcome::kMissLost) {
    ++totals.misses_lost;
  } else if (outcome == connector::LookupOutcome::kMissError) {
    ++totals.misses_error;
  } else {
    ++totals.misses;
  }
}

}  // namespace

bool LookupAnswers::IsSearching(const std::string& request) const {
  const auto entry = entries_.find(request);
  return entry != entries_.end() && entry->second.answer == nullptr;
}

LookupAnswers::Answer LookupAnswers::Ask(const std::string& request, const Query& query, MonotonicTime now,
                                         Dropped& dropped) {
  const int64_t num_hashes = query.hashes->size();
  auto found = entries_.find(request);
  if (found != entries_.end() &&
      (found->second.num_tokens != query.num_tokens || found->second.num_hashes != num_hashes)) {
    Drop(found, dropped);
    found = entries_.end();
  }
  if (found == entries_.end()) {
    Entry entry;
    entry.ticket = next_ticket_++;
    entry.num_tokens = query.num_tokens;
    entry.num_hashes = num_hashes;
    entry.hashes = query.hashes;
    entry.since = now;
    DropUnwanted(now);
    searches_.emplace_back(request, entry.ticket);
    entries_.emplace(request, std::move(entry));
    ++totals_.searches;
    return nullptr;
  }
  Entry& entry = found->second;
  if (entry.answer != nullptr) {
    if (entry.answer->length.value() == 0 || now < entry.start_until) return entry.answer;
    if (!entry.waiting) {
      entry.waiting = true;
      entry.since = now;
    }
  }
  if (now - entry.since < options_.deadline) return nullptr;
  ++(entry.answer == nullptr ? totals_.misses_deadline : totals_.hits_expired);
  AnswerMiss(request, entry, dropped);
  return entry.answer;
}

void LookupAnswers::Forget(const std::string& request, Dropped& dropped) {
  const auto entry = entries_.find(request);
  if (entry != entries_.end()) Drop(entry, dropped);
}

void LookupAnswers::ForgetAll(Dropped& dropped) {
  while (!entries_.empty()) Drop(entries_.begin(), dropped);
}

std::optional<LookupAnswers::Search> LookupAnswers::NextSearch(MonotonicTime now) {
  DropUnwanted(now);
  if (searches_.empty()) return std::nullopt;
  auto [request, ticket] = std::move(searches_.front());
  searches_.pop_front();
  const Entry& entry = entries_.find(request)->second;
  return Search{std::move(request), ticket, {entry.hashes, entry.num_tokens}};
}

void LookupAnswers::DropUnwanted(MonotonicTime now) {
  for (; !searches_.empty(); searches_.pop_front()) {
    const auto& [request, ticket] = searches_.front();
    const auto entry = entries_.find(request);
    const bool known = entry != entries_.end() && entry->second.ticket == ticket;
    // One that is late will count a miss when it asks again; the pool need not be troubled.
    if (known && now - entry->second.since < options_.deadline) return;
  }
}

void LookupAnswers::EndSearch(const Search& search, connector::LookupResult result, MonotonicTime now,
                              Dropped& dropped) {
  const auto entry = entries_.find(search.request);
  const bool wanted = entry != entries_.end() && entry->second.ticket == search.ticket;
  // Whether the request happened to ask in between must not matter: late is late.
  if (!wanted || now - entry->second.since >= options_.deadline) {
    MoveInto(result.leases, dropped.leases);
    return;
  }
  Answered(search.request, entry->second, std::move(result), now, dropped);
}

void LookupAnswers::Answered(const std::string& request, Entry& entry, connector::LookupResult result,
                             MonotonicTime now, Dropped& dropped) {
  if (result.hit.length.value() == 0) {
    CountMiss(result.outcome, totals_);
    MoveInto(result.leases, dropped.leases);
    AnswerMiss(request, entry, dropped);
    return;
  }
  ++totals_.hits;
  totals_.hit_tokens += result.hit.length.value();
  entry.answer = std::make_shared<const kv::Hit>(std::move(result.hit));
  Hold(request, entry, std::move(result.leases), now, dropped);
}

void LookupAnswers::Hold(const std::string& request, Entry& entry, std::vector<store::Lease> leases, MonotonicTime now,
                         Dropped& dropped) {
  MoveInto(entry.leases, dropped.leases);
  entry.leases = std::move(leases);
  entry.waiting = false;
  entry.lease_deadline = now;
  const auto earliest = std::min_element(entry.leases.begin(), entry.leases.end(),
                                         [](const auto& a, const auto& b) { return a.deadline() < b.deadline(); });
  if (earliest != entry.leases.end()) entry.lease_deadline = std::max(now, earliest->deadline());
  const absl::Duration granted = entry.lease_deadline - now;
  entry.start_until = now + granted * (1 - options_.start_above);
  RenewAt(request, entry, now + std::max(granted * (1 - options_.renew_below), kRenewalPauseMin));
}

void LookupAnswers::AnswerMiss(const std::string& request, Entry& entry, Dropped& dropped) {
  entry.ticket = next_ticket_++;
  entry.answer = Miss();
  entry.waiting = false;
  MoveInto(entry.leases, dropped.leases);
  dropped.hashes.push_back(std::move(entry.hashes));
  RenewAt(request, entry, MonotonicTime::Max());
}

std::optional<LookupAnswers::Renewal> LookupAnswers::NextRenewal(MonotonicTime now) {
  if (next_renewal_at() > now) return std::nullopt;
  const std::string request = renewals_.begin()->second;
  Entry& entry = entries_.find(request)->second;
  RenewAt(request, entry, MonotonicTime::Max());
  return Renewal{request, entry.ticket, entry.hashes, entry.answer};
}

MonotonicTime LookupAnswers::next_renewal_at() const {
  return renewals_.empty() ? MonotonicTime::Max() : renewals_.begin()->first;
}

void LookupAnswers::EndRenewal(const Renewal& renewal, absl::StatusOr<std::optional<store::Lease>> lease,
                               MonotonicTime now, Dropped& dropped) {
  ++totals_.renewals;
  const bool lost = lease.ok() && !lease->has_value();
  totals_.renewals_lost += lost;
  totals_.renewals_error += !lease.ok();
  const auto found = entries_.find(renewal.request);
  const bool wanted = found != entries_.end() && found->second.ticket == renewal.ticket;
  if (!wanted) {
    if (lease.ok() && !lost) dropped.leases.push_back(**std::move(lease));
    return;
  }
  Entry& entry = found->second;
  if (lease.ok() && !lost) {
    std::vector<store::Lease> leases;
    leases.push_back(**std::move(lease));
    Hold(renewal.request, entry, std::move(leases), now, dropped);
  } else if (lost || now >= entry.lease_deadline) {
    // The next Ask looks up anew: there may be a shorter hit.
    Drop(found, dropped);
  } else {
    RenewAt(renewal.request, entry, now + std::max((entry.lease_deadline - now) / 4, kRenewalPauseMin));
  }
}

void LookupAnswers::RenewAt(const std::string& request, Entry& entry, MonotonicTime at) {
  if (entry.renew_at != MonotonicTime::Max()) renewals_.erase({entry.renew_at, request});
  entry.renew_at = at;
  if (at != MonotonicTime::Max()) renewals_.emplace(at, request);
}

void LookupAnswers::Drop(Entries::iterator entry, Dropped& dropped) {
  if (entry->second.answer == nullptr) ++totals_.unwanted;
  RenewAt(entry->first, entry->second, MonotonicTime::Max());
  MoveInto(entry->second.leases, dropped.leases);
  if (entry->second.hashes != nullptr) dropped.hashes.push_back(std::move(entry->second.hashes));
  entries_.erase(entry);
}

}  // namespace tenure::engine
