// The scheduler's side of a store connector, for the vLLM glue.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/left_behind.h"
#include "bindings/list_hash_source.h"
#include "bindings/lookup_options.h"
#include "bindings/pool_handle.h"
#include "bindings/process_mark.h"
#include "tenure/base/clock.h"
#include "tenure/base/log.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/engine/store_scheduler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using engine::BlockId;
using engine::StoreScheduler;
using TokenIds = std::optional<std::vector<int32_t>>;
using States = std::vector<std::tuple<int32_t, BlockId, int64_t>>;  // Store group, block, tokens.
using Job = std::pair<uint64_t, std::vector<BlockId>>;

std::shared_ptr<const connector::HashSource> SourceFrom(const nb::list& hashes) {
  return std::make_shared<const ListHashSource>(hashes);
}
std::span<const int32_t> IdsFrom(const TokenIds& ids) { return ids ? std::span(*ids) : std::span<const int32_t>(); }

// A StoreScheduler with what it borrows.
class Scheduler {
 public:
  Scheduler(const kv::CacheConfig& config, BackgroundPool pool, connector::GroupNamespaces namespaces,
            const engine::StoreSchedulerOptions& options)
      : pool_(std::move(pool)),
        core_(ValueOrThrow(StoreScheduler::Create(config, *pool_.pool, std::move(namespaces), options, *clock_))) {}

  // What threads still use is left to them.
  ~Scheduler() {
    if (!made_in_.is_forked() && !left_behind_) return;
    static_cast<void>(core_.release());
    static_cast<void>(clock_.release());
    static_cast<void>(new std::shared_ptr<store::Pool>(std::move(pool_.pool)));
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  StoreScheduler& core() { return *core_; }

  // Ends the threads, then lets go of the pool. Those in a call that does not end are waited for no longer than the
  // pool says, once. Any thread; without the interpreter's lock, which a search may want.
  void Close() {
    if (made_in_.is_forked()) return;
    MutexLock lock(closing_);
    if (core_->Close(left_behind_ ? absl::ZeroDuration() : pool_.patience)) {
      left_behind_ = false;
      pool_.pool.reset();
    } else if (!std::exchange(left_behind_, true)) {
      LogWarning("a lookup still blocks in the pool at the end of its scheduler; its thread is left behind");
      LeaveMarkedThreads();
    }
  }

 private:
  const ProcessMark made_in_;
  std::unique_ptr<MonotonicClock> clock_ = std::make_unique<MonotonicClock>();
  BackgroundPool pool_;
  std::unique_ptr<StoreScheduler> core_;
  Mutex closing_;
  bool left_behind_ = false;  // Guarded by closing_, but for the destructor.
};

// Those that live, under the interpreter's lock. A thread that wants that lock while the interpreter goes away would
// end the process, so their threads are ended before.
std::vector<std::weak_ptr<Scheduler>>& Living() {
  static std::vector<std::weak_ptr<Scheduler>> living;
  return living;
}
void CloseAll() {
  std::vector<std::shared_ptr<Scheduler>> living;
  for (const auto& weak : Living()) {
    if (auto scheduler = weak.lock()) living.push_back(std::move(scheduler));
  }
  nb::gil_scoped_release unlocked;
  for (const auto& scheduler : living) scheduler->Close();
}

// The core is one thread's; a call that finds another one inside is refused.
class SchedulerHandle {
 public:
  explicit SchedulerHandle(std::shared_ptr<Scheduler> scheduler) : scheduler_(std::move(scheduler)) {
    std::erase_if(Living(), [](const auto& weak) { return weak.expired(); });
    Living().push_back(scheduler_);
  }
  ~SchedulerHandle() {
    nb::gil_scoped_release unlocked;
    scheduler_->Close();
  }
  SchedulerHandle(const SchedulerHandle&) = delete;
  SchedulerHandle& operator=(const SchedulerHandle&) = delete;

  // Runs `call` on the core.
  template <typename Call>
  auto Use(Call call) {
    const Turn turn(busy_);
    return call(scheduler_->core());
  }

  void Close() {
    nb::gil_scoped_release unlocked;
    scheduler_->Close();
  }

 private:
  class Turn {
   public:
    explicit Turn(std::atomic<bool>& busy) : busy_(busy) {
      if (busy_.exchange(true)) {
        Throw(FailedPrecondition("another thread is in this StoreScheduler; call it from the scheduler's thread only"));
      }
    }
    ~Turn() { busy_ = false; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

  std::shared_ptr<Scheduler> scheduler_;
  std::atomic<bool> busy_{false};
};

void Init(SchedulerHandle* self, const kv::CacheConfig& config, const PoolHandle& pool,
          const NamespaceLists& namespaces, const std::string& role, int world_size, const std::string& search,
          const std::string& lease, double lease_ttl, double lookup_deadline, int lookup_threads, bool inline_lookup,
          bool enable_lookup, bool save_decode_cache, bool events, bool sync_loads) {
  engine::StoreSchedulerOptions options;
  options.role = ValueOrThrow(engine::ParseEngineRole("role", role));
  options.world_size = world_size;
  options.enable_lookup = enable_lookup;
  options.save_decode_cache = save_decode_cache;
  options.events = events;
  options.sync_loads = sync_loads;
  options.lookups.lookup = LookupOptionsFrom(search, lease, lease_ttl);
  options.lookups.answers.deadline = DurationFrom("lookup_deadline", lookup_deadline, absl::Hours(1));
  // Without a thread nothing would renew or end a lease.
  CheckRange("lookup_threads", lookup_threads, 1, engine::BackgroundLookups::kThreadsMax);
  options.lookups.threads = lookup_threads;
  options.lookups.search_inline = inline_lookup;
  new (self) SchedulerHandle(std::make_shared<Scheduler>(config, pool.OpenInBackground(),
                                                         NamespaceIdsFrom(*pool.state(), namespaces), options));
}

std::optional<int64_t> MatchedTokens(SchedulerHandle& self, const std::string& request, const nb::list& hashes,
                                     int64_t num_tokens, int64_t num_computed) {
  const Tokens tokens = TokensFrom("num_tokens", num_tokens);
  const Tokens computed = TokensFrom("num_computed", num_computed);
  const auto source = SourceFrom(hashes);
  return self.Use([&](StoreScheduler& core) -> std::optional<int64_t> {
    std::optional<Tokens> found = core.MatchedTokens(request, source, tokens, computed);
    if (!found && core.can_await()) {
      {
        nb::gil_scoped_release unlocked;
        core.AwaitLookup(request);
      }
      found = core.MatchedTokens(request, source, tokens, computed);
    }
    return found ? std::optional(found->value()) : std::nullopt;
  });
}

void Allocated(SchedulerHandle& self, const std::string& request, const StoreScheduler::BlockTables& blocks,
               int64_t num_external) {
  const Tokens external = TokensFrom("num_external", num_external);
  ThrowIfError(self.Use([&](StoreScheduler& core) { return core.Allocated(request, blocks, external); }));
}

void ScheduledNew(SchedulerHandle& self, const std::string& request, const nb::list& hashes, int64_t num_prompt_tokens,
                  int64_t prefill_end, int64_t computed, int64_t scheduled, const TokenIds& token_ids) {
  const StoreScheduler::Prefill prefill{TokensFrom("num_prompt_tokens", num_prompt_tokens),
                                        TokensFrom("prefill_end", prefill_end), TokensFrom("computed", computed),
                                        TokensFrom("scheduled", scheduled)};
  self.Use([&](StoreScheduler& core) { core.ScheduledNew(request, SourceFrom(hashes), prefill, IdsFrom(token_ids)); });
}

void ScheduledCached(SchedulerHandle& self, const std::string& request, bool resumed, const nb::list& hashes,
                     int64_t num_tokens, int64_t computed, int64_t scheduled, const TokenIds& token_ids) {
  const Tokens tokens = TokensFrom("num_tokens", num_tokens);
  const Tokens before = TokensFrom("computed", computed);
  const Tokens now = TokensFrom("scheduled", scheduled);
  self.Use([&](StoreScheduler& core) {
    if (resumed) {
      core.ScheduledResumed(request, SourceFrom(hashes), tokens, before, now, IdsFrom(token_ids));
    } else {
      core.ScheduledRunning(request, SourceFrom(hashes), tokens, before, now, IdsFrom(token_ids));
    }
  });
}

engine::BoundaryPut PutFrom(int32_t group, BlockId block, int64_t tokens) {
  return {kv::GroupIndex(group), block, TokensFrom("tokens", tokens)};
}

nb::tuple FinishStep(SchedulerHandle& self) {
  const StoreScheduler::Step step = self.Use([](StoreScheduler& core) { return core.FinishStep(); });
  const std::string plan = EncodeStepPlan(step.plan);
  nb::list pins;
  for (const StoreScheduler::Pins& job : step.pins) pins.append(nb::cast(Job(job.job, job.blocks)));
  return nb::make_tuple(nb::bytes(plan.data(), plan.size()), pins);
}

std::optional<Job> FinishedPartialTail(SchedulerHandle& self, const std::string& request, const nb::list& hashes,
                                       int64_t num_prompt_tokens, int64_t computed,
                                       const StoreScheduler::BlockTables& blocks, const States& states) {
  std::vector<engine::BoundaryPut> puts;
  for (const auto& [group, block, tokens] : states) puts.push_back(PutFrom(group, block, tokens));
  const Tokens prompt = TokensFrom("num_prompt_tokens", num_prompt_tokens);
  const Tokens done = TokensFrom("computed", computed);
  const auto pins = ValueOrThrow(self.Use([&](StoreScheduler& core) {
    return core.FinishedPartialTail(request, SourceFrom(hashes), prompt, done, blocks, puts);
  }));
  return pins ? std::optional(Job(pins->job, pins->blocks)) : std::nullopt;
}

std::optional<std::vector<BlockId>> Completed(SchedulerHandle& self, uint64_t job, int64_t count) {
  CheckRange("count", count, 1, StoreScheduler::kWorkersMax);
  std::vector<BlockId> blocks = self.Use([&](StoreScheduler& core) { return core.Completed(job, count); });
  return blocks.empty() ? std::nullopt : std::optional(std::move(blocks));
}

nb::dict Counters(SchedulerHandle& self) {
  nb::dict dict;
  for (const auto& [name, value] : self.Use([](StoreScheduler& core) { return core.NamedCounters(); })) {
    dict[nb::str(name.data(), name.size())] = value;
  }
  return dict;
}

nb::list Operations(SchedulerHandle& self) {
  nb::list list;
  for (const engine::LookupRecord& record : self.Use([](StoreScheduler& core) { return core.TakeOperations(); })) {
    const std::string_view name = ToString(record.operation);
    const std::string_view status = ToString(record.status);
    list.append(nb::make_tuple(nb::str(name.data(), name.size()), absl::ToDoubleSeconds(record.duration), record.keys,
                               int64_t{0}, record.failed_keys, nb::str(status.data(), status.size())));
  }
  return list;
}

}  // namespace

void BindEngineScheduler(nb::module_& module) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&CloseAll));
  nb::class_<SchedulerHandle>(
      module, "StoreScheduler",
      "The scheduler's side of a store connector: lookups in the background, and the plan of each step.\n\n"
      "namespaces: as for Lookup. role: 'kv_producer', 'kv_consumer' or 'kv_both'. world_size: workers that report "
      "each save\n"
      "job. lookup_deadline: seconds from a request's first question to its miss. inline_lookup: search in the call, "
      "for pools\n"
      "that answer from memory at once. events: orders carry token ids. sync_loads: steps compute before it is known "
      "whether their\n"
      "loads brought the right bytes, so nothing is saved until they have ended. ValueError names the argument.\n"
      "All calls come from one thread; one from another thread meanwhile raises Error. Groups are store groups, block "
      "0 "
      "is the\n"
      "engine's null block, hashes is the engine's own list of bytes (16 or 32 each), read in place.")
      .def("__init__", &Init, "config"_a, "pool"_a, "namespaces"_a, nb::kw_only(), "role"_a, "world_size"_a,
           "search"_a = "tail_first", "lease"_a = "selective", "lease_ttl"_a = 10.0, "lookup_deadline"_a = 1.0,
           "lookup_threads"_a = 1, "inline_lookup"_a = false, "enable_lookup"_a = true, "save_decode_cache"_a = false,
           "events"_a = false, "sync_loads"_a = false)
      .def("matched_tokens", &MatchedTokens, "request"_a, "hashes"_a, "num_tokens"_a, "num_computed"_a,
           "Tokens past num_computed that a load can bring, leased; None while the lookup runs: ask again in a later "
           "step.\n"
           "Never raises for what a pool does: that is a miss, counted.")
      .def("allocated", &Allocated, "request"_a, "blocks"_a, "num_external"_a,
           "The engine has blocks for a load: tables, one a group by chunk, for all the tokens that were offered, or "
           "0 tokens\n"
           "when ours are not loaded; then the lease ends. ValueError for another number: the plan has a load that "
           "fails, "
           "since the\n"
           "engine waits for one.")
      .def(
          "load_done",
          [](SchedulerHandle& self, const std::string& request) {
            self.Use([&](StoreScheduler& core) { core.LoadDone(request); });
          },
          "request"_a, "Every worker has loaded the request; its lease ends. After load_failed: nothing.")
      .def(
          "load_failed",
          [](SchedulerHandle& self, const std::string& request) {
            self.Use([&](StoreScheduler& core) { core.LoadFailed(request); });
          },
          "request"_a, "A worker could not load the request: it is never offered anything again.")
      .def(
          "begin_step",
          [](SchedulerHandle& self, const std::vector<std::string>& finished,
             const std::vector<std::string>& preempted) {
            self.Use([&](StoreScheduler& core) { core.BeginStep(finished, preempted); });
          },
          "finished"_a, "preempted"_a,
          "Begins the plan of a step with the requests that ended and those that were preempted.")
      .def("scheduled_new", &ScheduledNew, "request"_a, "hashes"_a, "num_prompt_tokens"_a, "prefill_end"_a,
           "computed"_a, "scheduled"_a, "token_ids"_a = nb::none(),
           "A request's first step: `scheduled` tokens after `computed`, of prefill_end to prefill. token_ids: from "
           "the first\n"
           "token on, for events.")
      .def("scheduled_cached", &ScheduledCached, "request"_a, "resumed"_a, "hashes"_a, "num_tokens"_a, "computed"_a,
           "scheduled"_a, "token_ids"_a = nb::none(),
           "A later step, or the first one after a preemption. num_tokens: those that exist, all of them to prefill "
           "when\n"
           "resumed; 0 when not resumed for no limit to `scheduled`.")
      .def(
          "boundary_state",
          [](SchedulerHandle& self, const std::string& request, int32_t group, BlockId block, int64_t tokens) {
            const engine::BoundaryPut put = PutFrom(group, block, tokens);
            self.Use([&](StoreScheduler& core) { core.BoundaryState(request, put); });
          },
          "request"_a, "group"_a, "block"_a, "tokens"_a,
          "A recurrent state after exactly `tokens` tokens lies in `block`. Dropped where it is of no use.")
      .def(
          "save_requests",
          [](SchedulerHandle& self) { return self.Use([](auto& core) { return core.SaveRequests(); }); },
          "Requests with a save in this step; tell the current blocks of each before finish_step.")
      .def(
          "current_blocks",
          [](SchedulerHandle& self, const std::string& request, StoreScheduler::BlockTables blocks) {
            self.Use([&](StoreScheduler& core) { core.CurrentBlocks(request, std::move(blocks)); });
          },
          "request"_a, "blocks"_a, "The request's tables, one a group by chunk.")
      .def("finish_step", &FinishStep,
           "(plan, [(job, blocks)]): the bytes for every worker, and the blocks to pin now for each save job.")
      .def("finished_partial_tail", &FinishedPartialTail, "request"_a, "hashes"_a, "num_prompt_tokens"_a, "computed"_a,
           "blocks"_a, "states"_a,
           "Saves what a request leaves at its end: states are (group, block, tokens), all at one boundary (else "
           "ValueError).\n"
           "(job, blocks to pin now) for the next plan, or None when there is nothing to save.")
      .def("completed", &Completed, "job"_a, "count"_a,
           "`count` more workers have done the job. The blocks to unpin when they were the last, else None.")
      .def(
          "pending_jobs",
          [](SchedulerHandle& self) { return self.Use([](auto& core) { return core.pending_jobs() > 0; }); },
          "Whether a job still pins blocks.")
      .def(
          "reset", [](SchedulerHandle& self) { self.Use([](StoreScheduler& core) { core.Reset(); }); },
          "Forgets every answer and offer, for a pool that is about to be emptied.")
      .def("counters", &Counters, "Sums since the start by name, each ending in _total.")
      .def("operations", &Operations,
           "Calls of the pool since the last call: (name, seconds, keys, 0, failed keys, status), oldest first.")
      .def("close", &SchedulerHandle::Close,
           "Ends lookups and leases and lets go of the pool; nothing is offered after it. Waits for a call of the pool "
           "under\n"
           "way, 2 s for one of Mooncake, whose thread is left behind then. Idempotent.");
}

}  // namespace tenure::python
