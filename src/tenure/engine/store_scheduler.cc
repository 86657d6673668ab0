#include "tenure/engine/store_scheduler.h"

#include <algorithm>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/engine/load_order.h"
#include "tenure/engine/partial_tail.h"

namespace tenure::engine {
namespace {

bool IsTooLong(const std::string& id) { return id.size() > kRequestIdBytesMax; }

std::vector<int32_t> Prefix(std::span<const int32_t> ids, Tokens length) {
  const size_t size = std::min(ids.size(), static_cast<size_t>(length.value()));
  return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(size)};
}

}  // namespace

absl::StatusOr<EngineRole> ParseEngineRole(std::string_view what, std::string_view text) {
  if (text == "kv_producer") return EngineRole::kProducer;
  if (text == "kv_consumer") return EngineRole::kConsumer;
  if (text == "kv_both") return EngineRole::kBoth;
  return InvalidArgument("{} is \"{}\"; use kv_producer, kv_consumer or kv_both", what, text.substr(0, 64));
}

absl::StatusOr<std::unique_ptr<StoreScheduler>> StoreScheduler::Create(const kv::CacheConfig& config, store::Pool& pool,
                                                                       connector::GroupNamespaces namespaces,
                                                                       const StoreSchedulerOptions& options,
                                                                       const Clock& clock) {
  if (options.world_size < 1 || options.world_size > kWorkersMax) {
    return InvalidArgument("world_size is {}; use 1 to {}", options.world_size, kWorkersMax);
  }
  std::unique_ptr<StoreScheduler> scheduler(new StoreScheduler(config, options, clock));
  TENURE_ASSIGN_OR_RETURN(
      scheduler->lookups_,
      BackgroundLookups::Create(scheduler->config_, pool, std::move(namespaces), options.lookups, clock));
  return scheduler;
}

StoreScheduler::StoreScheduler(const kv::CacheConfig& config, const StoreSchedulerOptions& options, const Clock& clock)
    : config_(config), options_(options), save_pace_(clock), jobs_(options.world_size) {}

std::optional<Tokens> StoreScheduler::MatchedTokens(const std::string& id, const Hashes& hashes, Tokens num_tokens,
                                                    Tokens num_computed) {
  if (!options_.enable_lookup || num_tokens < config_.hit_alignment() || IsTooLong(id)) return Tokens();
  Request& request = requests_[id];
  if (request.never_again) {
    // What the engine has now it has from its own cache.
    request.outcome.local = Tokens(INT64_MAX);
    if (!std::exchange(request.refusal_counted, true)) ++counters_.refused_after_failure_total;
    return Tokens();
  }
  loading_ -= IsLoading(request);
  request.load = Request::Load::kNone;
  request.outcome = {};
  const LookupAnswers::Answer answer = lookups_->Ask(id, {hashes, num_tokens});
  if (answer == nullptr) return std::nullopt;
  if (answer->length <= num_computed) return Tokens();
  request.load = Request::Load::kOffered;
  request.hit = answer;
  request.hashes = hashes;
  request.outcome.local = num_computed;
  return answer->length - num_computed;
}

bool StoreScheduler::can_await() const {
  return options_.lookups.search_inline || options_.lookups.grace > absl::ZeroDuration();
}

absl::Status StoreScheduler::Allocated(const std::string& id, const BlockTables& blocks, Tokens num_external) {
  if (IsTooLong(id)) return absl::OkStatus();
  Request& request = requests_[id];
  request.allocated = true;
  const bool loading = IsLoading(request);
  if (num_external == Tokens()) {
    if (!loading) DropOffer(id, request);
    return absl::OkStatus();
  }
  const Tokens offered =
      request.load == Request::Load::kOffered ? request.hit->length - request.outcome.local : Tokens();
  absl::StatusOr<LoadOrder> order =
      InvalidArgument("num_external is {} for request {}, which was offered {} tokens; pass what was offered, or 0",
                      num_external.value(), id, offered.value());
  if (num_external == offered) {
    order = MakeLoadOrder(config_, *request.hashes, {id, request.outcome.local, *request.hit, blocks});
  }
  if (!order.ok()) {
    ++counters_.refused_loads_total;
    if (loading) return order.status();
    DropOffer(id, request);
    const Tokens local = offered > Tokens() ? request.outcome.local : Tokens();
    request.order = MakeRefusedOrder(config_, id, local, blocks);
    request.outcome = {.local = local, .hit = local + num_external};
  } else {
    request.order = *std::move(order);
    request.outcome.hit = request.order.length;
  }
  if (!loading) ++loading_;
  request.load = Request::Load::kAccepted;
  accepted_.push_back(id);
  return order.status();
}

bool StoreScheduler::IsLoading(const Request& request) const {
  return request.load == Request::Load::kAccepted || request.load == Request::Load::kOrdered;
}

// Also what was answered and not offered.
void StoreScheduler::DropOffer(const std::string& id, Request& request) {
  loading_ -= IsLoading(request);
  lookups_->Forget(id);
  request.load = Request::Load::kNone;
  request.hit = nullptr;
}

void StoreScheduler::LoadDone(const std::string& id) { EndLoad(id, false); }
void StoreScheduler::LoadFailed(const std::string& id) { EndLoad(id, true); }

void StoreScheduler::EndLoad(const std::string& id, bool failed) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  request.never_again = request.never_again || failed;
  if (request.load != Request::Load::kOrdered) return;
  ++(failed ? counters_.failed_loads_total : counters_.done_loads_total);
  request.outcome.failed = failed;
  DropOffer(id, request);
  if (!request.unaccounted) return;
  const auto [prompt, present] = *std::exchange(request.unaccounted, std::nullopt);
  // Scheduled before its load had ended: nothing past the local tokens can be relied on.
  AddPrefill(prompt, failed ? request.outcome.local : present, request.outcome, counters_.tokens);
}

void StoreScheduler::BeginStep(const std::vector<std::string>& finished, const std::vector<std::string>& preempted) {
  for (const std::string& id : finished) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    DropOffer(id, found->second);
    if (found->second.known_to_workers) plan_.finished.push_back(id);
    requests_.erase(found);
  }
  for (const std::string& id : preempted) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    // A load under way ends by its report.
    if (request.load != Request::Load::kOrdered) DropOffer(id, request);
    if (request.known_to_workers) plan_.preempted.push_back(id);
    if (request.load != Request::Load::kOrdered) request.outcome = {};
    request.tracker.reset();
    request.unaccounted.reset();
    request.allocated = false;
    request.hashes_sent = 0;
  }
}

void StoreScheduler::ScheduledNew(const std::string& id, const Hashes& hashes, const Prefill& prefill,
                                  std::span<const int32_t> token_ids) {
  if (IsTooLong(id)) return;
  Request& request = requests_[id];
  Begin(id, request, hashes, prefill, token_ids);
}

void StoreScheduler::ScheduledResumed(const std::string& id, const Hashes& hashes, Tokens num_tokens, Tokens computed,
                                      Tokens scheduled, std::span<const int32_t> token_ids) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Begin(id, found->second, hashes, {found->second.num_prompt_tokens, num_tokens, computed, scheduled}, token_ids);
}

void StoreScheduler::Begin(const std::string& id, Request& request, const Hashes& hashes, const Prefill& prefill,
                           std::span<const int32_t> token_ids) {
  const bool loading = IsLoading(request);
  if (loading) {
    request.unaccounted = {prefill.end, prefill.computed};
  } else {
    AddPrefill(prefill.end, prefill.computed, request.outcome, counters_.tokens);
    DropOffer(id, request);
  }
  const bool keep_ids = options_.events;
  const Tokens length = prefill.computed + prefill.scheduled;
  request.outcome = loading ? request.outcome : LoadOutcome();
  request.hashes = hashes;
  request.num_prompt_tokens = prefill.num_prompt_tokens;
  request.tracker.emplace(length, prefill.end, keep_ids ? Prefix(token_ids, length) : std::vector<int32_t>());
  if (saves_prefill()) SaveOrHold(id, request);
}

void StoreScheduler::SaveOrHold(const std::string& id, Request& request) {
  // What a load brings is in the pool already; later steps save the rest.
  request.save_held = IsLoading(request) || MayBeWrong();
  if (!request.save_held) PlanSave(id, request);
}

void StoreScheduler::ScheduledRunning(const std::string& id, const Hashes& hashes, Tokens num_tokens, Tokens computed,
                                      Tokens scheduled, std::span<const int32_t> token_ids) {
  if (!saves_prefill() && !options_.save_decode_cache) return;
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.tracker) return;
  Request& request = found->second;
  SaveTracker& tracker = *request.tracker;
  if (computed < tracker.length()) tracker.Rewind(computed, config_.scheduler_block_size());
  const bool decodes = computed >= tracker.prefill_end();
  if (decodes && !options_.save_decode_cache) {
    if (request.save_held) SaveOrHold(id, request);
    return;
  }
  const Tokens end = computed + scheduled;
  const Tokens count =
      std::max((num_tokens == Tokens() ? end : std::min(num_tokens, end)) - tracker.length(), Tokens());
  const std::vector<int32_t> known = Prefix(token_ids, tracker.length() + count);
  const size_t seen = std::min(known.size(), static_cast<size_t>(tracker.length().value()));
  tracker.Extend(count, options_.events ? std::span(known).subspan(seen) : std::span<const int32_t>());
  request.hashes = hashes;
  if (saves_prefill() || decodes) SaveOrHold(id, request);
}

void StoreScheduler::PlanSave(const std::string& id, Request& request) {
  const std::optional<SaveStep> step =
      request.tracker->Next(config_, request.num_prompt_tokens, request.hashes->size());
  if (!step || pending_of_.contains(id)) return;
  Pending pending;
  pending.order.request = id;
  pending.order.length = step->length;
  pending.order.prefill_end = request.tracker->prefill_end();
  pending.order.tokens = step->tokens;
  pending.publish_tail = step->publish_tail;
  pending_of_.emplace(id, pending_.size());
  pending_.push_back(std::move(pending));
}

bool StoreScheduler::IsState(kv::GroupIndex group) const {
  return group.value() >= 0 && static_cast<size_t>(group.value()) < config_.groups().size() &&
         config_.groups()[static_cast<size_t>(group.value())].kind == kv::GroupKind::kState;
}

bool StoreScheduler::IsUsableState(const BoundaryPut& put) const {
  return IsState(put.group) && put.block > kNullBlock && put.tokens > Tokens() &&
         put.tokens % config_.hash_block_size() == Tokens();
}

void StoreScheduler::BoundaryState(const std::string& id, const BoundaryPut& put) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.allocated || !found->second.tracker) return;
  if (MayBeWrong() || !IsUsableState(put)) return;
  const Tokens prefill_end = found->second.tracker->prefill_end();
  // A state alone resumes nothing: what is saved of the other groups decides.
  if (put.tokens > prefill_end ? !options_.save_decode_cache : !saves_prefill()) return;
  const auto [at, added] = pending_of_.emplace(id, pending_.size());
  if (added) {
    Pending pending;
    pending.order.request = id;
    pending.order.prefill_end = prefill_end;
    pending_.push_back(std::move(pending));
  }
  pending_[at->second].order.boundary_puts.push_back(put);
}

std::vector<std::string> StoreScheduler::SaveRequests() const {
  std::vector<std::string> ids;
  for (const Pending& pending : pending_) ids.push_back(pending.order.request);
  return ids;
}

void StoreScheduler::CurrentBlocks(const std::string& id, BlockTables blocks) {
  const auto found = pending_of_.find(id);
  if (found == pending_of_.end() || blocks.size() != config_.groups().size()) return;
  pending_[found->second].order.blocks = std::move(blocks);
  pending_[found->second].has_blocks = true;
}

StoreScheduler::Step StoreScheduler::FinishStep() {
  Step step;
  for (const std::string& id : accepted_) {
    const auto found = requests_.find(id);
    if (found == requests_.end() || found->second.load != Request::Load::kAccepted) continue;
    found->second.load = Request::Load::kOrdered;
    found->second.known_to_workers = true;
    plan_.loads.push_back(std::move(found->second.order));
    ++counters_.load_orders_total;
  }
  accepted_.clear();
  for (Pending& pending : pending_) {
    const auto found = requests_.find(pending.order.request);
    if (found == requests_.end() || !found->second.tracker) continue;
    std::optional<Pins> pins = Emit(found->second, pending, plan_);
    if (pins && !pins->blocks.empty()) step.pins.push_back(*std::move(pins));
  }
  pending_.clear();
  pending_of_.clear();
  for (SaveOrder& order : finish_tails_) plan_.saves.push_back(std::move(order));
  finish_tails_.clear();
  step.plan = std::exchange(plan_, {});
  lookups_->EndStep();
  return step;
}

std::optional<StoreScheduler::Pins> StoreScheduler::Emit(Request& request, Pending& pending, StepPlan& plan) {
  SaveOrder& order = pending.order;
  absl::Status status = absl::OkStatus();
  if (!pending.has_blocks) {
    status = FailedPrecondition("no current block table of {} groups came", config_.groups().size());
  } else {
    std::vector<BoundaryPut> puts =
        config_.fine()
            ? PartialTailPuts(config_, {request.num_prompt_tokens, request.tracker->length(), request.hashes->size(),
                                        pending.publish_tail, order.blocks, order.boundary_puts})
            : std::vector<BoundaryPut>();
    order.boundary_puts.insert(order.boundary_puts.begin(), puts.begin(), puts.end());
    if (order.length == Tokens() && order.boundary_puts.empty()) return std::nullopt;
    status = AddHashes(request, request.hashes, order);
  }
  if (!status.ok()) {
    ++counters_.dropped_saves_total;
    if (save_pace_.Allows()) LogWarning("a save of request {} is dropped: {}", order.request, Message(status));
    return std::nullopt;
  }
  order.job = jobs_.NewJob();
  Pins pins{order.job, BlocksToPin(config_, order)};
  jobs_.Pin(pins.job, pins.blocks);
  request.known_to_workers = true;
  ++counters_.save_orders_total;
  plan.saves.push_back(std::move(order));
  return pins;
}

absl::Status StoreScheduler::AddHashes(Request& request, const Hashes& hashes, SaveOrder& order) {
  Tokens end = order.length;
  for (const BoundaryPut& put : order.boundary_puts) end = std::max(end, put.tokens);
  const int64_t needed = end / config_.hash_block_size();
  if (needed > hashes->size()) {
    return FailedPrecondition("{} tokens need {} block hashes; the request has {}", end.value(), needed,
                              hashes->size());
  }
  order.first_hash = request.hashes_sent;
  std::vector<kv::HashIndex> indices;
  for (int64_t index = request.hashes_sent; index < needed; ++index) indices.emplace_back(index);
  order.hashes.resize(indices.size());
  TENURE_RETURN_IF_ERROR(hashes->Read(indices, order.hashes));
  request.hashes_sent = std::max(request.hashes_sent, needed);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StoreScheduler::Pins>> StoreScheduler::FinishedPartialTail(
    const std::string& id, const Hashes& hashes, Tokens num_prompt_tokens, Tokens computed, BlockTables blocks,
    std::vector<BoundaryPut> states) {
  for (const BoundaryPut& put : states) {
    if (put.tokens != states.front().tokens) {
      return InvalidArgument("the tail of request {} has states at {} and {} tokens; give those of one boundary", id,
                             states.front().tokens.value(), put.tokens.value());
    }
  }
  const auto found = requests_.find(id);
  if (!saves_prefill() || states.empty() || found == requests_.end() || !found->second.tracker ||
      blocks.size() != config_.groups().size()) {
    return std::optional<Pins>();
  }
  Request& request = found->second;
  const bool usable = std::all_of(states.begin(), states.end(), [this](const auto& put) { return IsUsableState(put); });
  if (!usable || states.front().tokens > request.tracker->prefill_end()) return std::optional<Pins>();
  SaveOrder order;
  order.request = id;
  order.prefill_end = request.tracker->prefill_end();
  order.boundary_puts = PartialTailPuts(config_, {num_prompt_tokens, computed, hashes->size(), false, blocks, states});
  order.boundary_puts.insert(order.boundary_puts.end(), states.begin(), states.end());
  order.blocks = std::move(blocks);
  const absl::Status status = AddHashes(request, hashes, order);
  if (!status.ok()) {
    ++counters_.dropped_saves_total;
    if (save_pace_.Allows()) LogWarning("the tail of request {} is not saved: {}", id, Message(status));
    return std::optional<Pins>();
  }
  order.job = jobs_.NewJob();
  Pins pins{order.job, BlocksToPin(config_, order)};
  jobs_.Pin(pins.job, pins.blocks);
  request.known_to_workers = true;
  ++counters_.save_orders_total;
  finish_tails_.push_back(std::move(order));
  return std::optional<Pins>(std::move(pins));
}

std::vector<std::pair<std::string_view, int64_t>> StoreScheduler::NamedCounters() {
  const LookupTotals lookups = lookups_->totals();
  WatchForWriteOnly(lookups);
  const TokenTotals& tokens = counters_.tokens;
  return {{"lookups_total", lookups.searches},
          {"lookup_hits_total", lookups.hits},
          {"lookup_hit_tokens_total", lookups.hit_tokens},
          {"lookup_misses_total", lookups.misses},
          {"lookup_misses_lost_total", lookups.misses_lost},
          {"lookup_misses_error_total", lookups.misses_error},
          {"lookup_misses_deadline_total", lookups.misses_deadline},
          {"lookup_hits_expired_total", lookups.hits_expired},
          {"lookups_unwanted_total", lookups.unwanted},
          {"lease_renewals_total", lookups.renewals},
          {"lease_renewals_lost_total", lookups.renewals_lost},
          {"lease_renewals_error_total", lookups.renewals_error},
          {"refused_after_failure_total", counters_.refused_after_failure_total},
          {"load_orders_total", counters_.load_orders_total},
          {"load_orders_refused_total", counters_.refused_loads_total},
          {"load_orders_done_total", counters_.done_loads_total},
          {"load_orders_failed_total", counters_.failed_loads_total},
          {"save_orders_total", counters_.save_orders_total},
          {"save_orders_dropped_total", counters_.dropped_saves_total},
          {"write_only_alarms_total", counters_.write_only_alarms_total},
          {"prompt_tokens_total", tokens.prompt},
          {"local_tokens_total", tokens.local},
          {"external_tokens_total", tokens.external},
          {"recomputed_tokens_total", tokens.recomputed},
          {"computed_tokens_total", tokens.computed}};
}

void StoreScheduler::WatchForWriteOnly(const LookupTotals& lookups) {
  if (counters_.write_only_alarms_total > 0 || lookups.hits > 0) return;
  if (lookups.searches < kWriteOnlyLookups || counters_.save_orders_total == 0) return;
  ++counters_.write_only_alarms_total;
  LogWarning(
      "{} lookups have found nothing in the pool, to which this engine saves: {} failed or were late, {} found no key. "
      "Does each process hash alike (PYTHONHASHSEED), do the engines have one model, dtype and cache_prefix, is the "
      "pool larger than what is written between two uses of a prompt, and do prompts share their beginnings at all?",
      lookups.searches, lookups.misses_error + lookups.misses_deadline, lookups.misses);
}

void StoreScheduler::Reset() {
  lookups_->ForgetAll();
  for (auto& [id, request] : requests_) {
    if (IsLoading(request)) continue;
    request.load = Request::Load::kNone;
    request.hit = nullptr;
  }
}

}  // namespace tenure::engine
