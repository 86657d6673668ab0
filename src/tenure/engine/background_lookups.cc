#include "tenure/engine/background_lookups.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/engine/lease_load_set.h"

namespace tenure::engine {
namespace {

absl::Status Validate(const BackgroundLookupOptions& options) {
  if (options.threads < 0 || options.threads > BackgroundLookups::kThreadsMax) {
    return InvalidArgument("lookup_threads is {}; use 0 to {}", options.threads, BackgroundLookups::kThreadsMax);
  }
  if (options.answers.deadline <= absl::ZeroDuration()) {
    return InvalidArgument("lookup_deadline is {} s; use more than 0", absl::ToDoubleSeconds(options.answers.deadline));
  }
  const double start_above = options.answers.start_above;
  const double renew_below = options.answers.renew_below;
  if (!(start_above >= 0 && start_above < renew_below && renew_below < 1)) {
    return InvalidArgument("start_above is {} and renew_below is {}; use 0 <= start_above < renew_below < 1",
                           start_above, renew_below);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackgroundLookups>> BackgroundLookups::Create(const kv::CacheConfig& config,
                                                                             store::Pool& pool,
                                                                             connector::GroupNamespaces namespaces,
                                                                             const BackgroundLookupOptions& options,
                                                                             const Clock& clock) {
  TENURE_RETURN_IF_ERROR(Validate(options));
  std::unique_ptr<BackgroundLookups> lookups(new BackgroundLookups(config, pool, options, clock));
  TENURE_RETURN_IF_ERROR(lookups->MakeSearchers(namespaces));
  {
    MutexLock lock(lookups->mutex_);
    lookups->serving_ = options.threads;
  }
  for (int thread = 0; thread < options.threads; ++thread) {
    Searcher& searcher = *lookups->searchers_[static_cast<size_t>(thread)];
    lookups->threads_.emplace_back([self = lookups.get(), &searcher] { self->Serve(searcher); });
  }
  return lookups;
}

BackgroundLookups::BackgroundLookups(const kv::CacheConfig& config, store::Pool& pool,
                                     const BackgroundLookupOptions& options, const Clock& clock)
    : config_(config),
      pool_(pool, clock),
      options_(options),
      clock_(clock),
      late_pace_(clock),
      error_pace_(clock),
      renewal_pace_(clock),
      answers_(options.answers),
      step_left_(options.step_grace) {}

absl::Status BackgroundLookups::MakeSearchers(const connector::GroupNamespaces& namespaces) {
  for (int i = 0; i <= options_.threads; ++i) {
    TENURE_ASSIGN_OR_RETURN(connector::Lookup lookup,
                            connector::Lookup::Create(config_, pool_, namespaces, options_.lookup));
    searchers_.push_back(std::make_unique<Searcher>(Searcher{std::move(lookup), connector::KeyBatch(namespaces)}));
  }
  return absl::OkStatus();
}

LookupAnswers::Answer BackgroundLookups::Ask(const std::string& request, const LookupAnswers::Query& query) {
  LookupAnswers::Dropped dropped;
  LookupAnswers::Answer answer;
  bool late = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return std::make_shared<const kv::Hit>();
    const LookupTotals before = answers_.totals();
    answer = answers_.Ask(request, query, clock_.Now(), dropped);
    if (answers_.totals().searches > before.searches) work_.SignalOne();
    late = answers_.totals().misses_deadline > before.misses_deadline;
    LeaveLeases(dropped);
  }
  if (late && late_pace_.Allows()) {
    LogWarning("no answer to the lookup of request {} within {} s; it counts as a miss", request,
               absl::ToDoubleSeconds(options_.answers.deadline));
  }
  return answer;
}

void BackgroundLookups::Await(const std::string& request) {
  MutexLock lock(mutex_);
  if (options_.search_inline) {
    while (!stopping_ && answers_.IsSearching(request) && RunSearch(*searchers_.back())) continue;
    EndDropped();
    return;
  }
  const MonotonicTime begin = clock_.Now();
  const absl::Duration most = std::min(options_.grace, step_left_);
  absl::Duration waited;
  while (patient_ && !stopping_ && waited < most && answers_.IsSearching(request)) {
    answered_.WaitFor(mutex_, most - waited);
    waited = clock_.Now() - begin;
    patient_ = waited < options_.grace || !answers_.IsSearching(request);
  }
  step_left_ -= std::min(step_left_, waited);
}

void BackgroundLookups::EndStep() {
  MutexLock lock(mutex_);
  step_left_ = options_.step_grace;
}

void BackgroundLookups::Forget(const std::string& request) {
  LookupAnswers::Dropped dropped;
  MutexLock lock(mutex_);
  answers_.Forget(request, dropped);
  LeaveLeases(dropped);
}

void BackgroundLookups::ForgetAll() {
  LookupAnswers::Dropped dropped;
  MutexLock lock(mutex_);
  answers_.ForgetAll(dropped);
  LeaveLeases(dropped);
}

void BackgroundLookups::LeaveLeases(LookupAnswers::Dropped& dropped) {
  if (dropped.leases.empty()) return;
  dropped_.leases.insert(dropped_.leases.end(), std::make_move_iterator(dropped.leases.begin()),
                         std::make_move_iterator(dropped.leases.end()));
  dropped.leases.clear();
  work_.SignalOne();
}

LookupTotals BackgroundLookups::totals() {
  MutexLock lock(mutex_);
  return answers_.totals();
}

void BackgroundLookups::Serve(Searcher& searcher) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (RunOne(searcher, !options_.search_inline)) continue;
    const MonotonicTime next = answers_.next_renewal_at();
    if (next == MonotonicTime::Max()) {
      work_.Wait(mutex_);
    } else {
      work_.WaitFor(mutex_, next - clock_.Now());
    }
  }
  --serving_;
  answered_.SignalAll();
}

bool BackgroundLookups::RunPending() {
  MutexLock lock(mutex_);
  return RunOne(*searchers_.back(), true);
}

bool BackgroundLookups::RunOne(Searcher& searcher, bool may_search) {
  // Renewals first: a lease that ends costs its request a whole search.
  return EndDropped() || RunRenewal(searcher) || (may_search && RunSearch(searcher));
}

bool BackgroundLookups::EndDropped() {
  if (dropped_.leases.empty() && dropped_.hashes.empty()) return false;
  LookupAnswers::Dropped ended = std::exchange(dropped_, {});
  mutex_.Unlock();
  ended = {};
  mutex_.Lock();
  return true;
}

bool BackgroundLookups::RunSearch(Searcher& searcher) {
  const MonotonicTime start = clock_.Now();
  std::optional<LookupAnswers::Search> search = answers_.NextSearch(start);
  if (!search) return false;
  ++searching_;
  mutex_.Unlock();
  connector::LookupResult result = searcher.lookup.Find(*search->query.hashes, search->query.num_tokens);
  if (!result.error.ok() && error_pace_.Allows()) {
    LogWarning("the lookup of request {} failed and counts as a miss: {}", search->request, Message(result.error));
  }
  mutex_.Lock();
  --searching_;
  const MonotonicTime now = clock_.Now();
  patient_ = now - start <= options_.grace;
  answers_.EndSearch(*search, std::move(result), now, dropped_);
  // It may be the last that holds the list; see EndDropped.
  dropped_.hashes.push_back(std::move(search->query.hashes));
  answered_.SignalAll();
  return true;
}

bool BackgroundLookups::RunRenewal(Searcher& searcher) {
  std::optional<LookupAnswers::Renewal> renewal = answers_.NextRenewal(clock_.Now());
  if (!renewal) return false;
  mutex_.Unlock();
  absl::StatusOr<std::optional<store::Lease>> lease =
      LeaseLoadSet(config_, pool_, searcher.keys, *renewal->hashes, *renewal->hit, options_.lookup.lease_ttl);
  if (!lease.ok() && renewal_pace_.Allows()) {
    LogWarning("renewing the lease of request {}'s lookup failed; tried again while it lasts: {}", renewal->request,
               Message(lease.status()));
  }
  mutex_.Lock();
  answers_.EndRenewal(*renewal, std::move(lease), clock_.Now(), dropped_);
  dropped_.hashes.push_back(std::move(renewal->hashes));
  return true;
}

bool BackgroundLookups::Stop(absl::Duration patience) {
  const MonotonicTime end = clock_.Now() + patience;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.SignalAll();
    answered_.SignalAll();
  }
  ForgetAll();
  {
    MutexLock lock(mutex_);
    while (serving_ > 0 || searching_ > 0) {
      if (patience == absl::InfiniteDuration()) {
        answered_.Wait(mutex_);
        continue;
      }
      const absl::Duration rest = end - clock_.Now();
      if (rest <= absl::ZeroDuration()) return false;
      answered_.WaitFor(mutex_, rest);
    }
    EndDropped();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return true;
}

}  // namespace tenure::engine
