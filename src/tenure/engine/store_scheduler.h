// The scheduler's side of a store connector: what an engine asks before it schedules a request, and the plan of each
// step.
//
// The engine's glue makes the calls in the engine's order, all from one thread; none of them waits for a pool but
// AwaitLookup. Requests are known by their ids from the first call until BeginStep tells that they are finished. A
// request whose load failed is never offered another one: a pool that still answers "present" would have it load and
// fail for ever. Source: store_connector spec §6.1 and §8; design §6.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/connector/key_batch.h"
#include "tenure/engine/background_lookups.h"
#include "tenure/engine/log_pace.h"
#include "tenure/engine/pinned_jobs.h"
#include "tenure/engine/save_tracker.h"
#include "tenure/engine/step_plan.h"
#include "tenure/engine/token_account.h"
#include "tenure/kv/cache_config.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

// A consumer saves no prefill, and decoded tokens only with save_decode_cache.
enum class EngineRole : uint8_t { kProducer, kConsumer, kBoth };
// "kv_producer", "kv_consumer", "kv_both".
absl::StatusOr<EngineRole> ParseEngineRole(std::string_view what, std::string_view text);

struct StoreSchedulerOptions {
  EngineRole role = EngineRole::kBoth;
  int world_size = 1;              // Workers that report each save job.
  bool enable_lookup = true;       // false: nothing is ever loaded.
  bool save_decode_cache = false;  // Save what is decoded, too.
  bool events = false;             // Orders carry token ids.
  // A step computes before it is known whether its loads brought the right bytes (a synchronous load): nothing that it
  // computes is saved until they have ended.
  bool sync_loads = false;
  BackgroundLookupOptions lookups;
};

// Sums since the start, besides those of the lookups.
struct SchedulerCounters {
  int64_t refused_after_failure_total = 0;  // Requests that asked again after a failed load.
  int64_t load_orders_total = 0;
  int64_t refused_loads_total = 0;  // The engine took another number of tokens than was offered, or gave no blocks.
  int64_t done_loads_total = 0;
  int64_t failed_loads_total = 0;
  int64_t save_orders_total = 0;
  int64_t dropped_saves_total = 0;      // No block table came for it, or its hashes could not be read.
  int64_t write_only_alarms_total = 0;  // 1 when this engine only ever wrote; see kWriteOnlyLookups.
  TokenTotals tokens;
};

class StoreScheduler {
 public:
  static constexpr int kWorkersMax = 65'536;
  // So many lookups without one hit, with saves made, raise the alarm, once.
  static constexpr int64_t kWriteOnlyLookups = 1000;
  using Hashes = LookupAnswers::Hashes;  // Those that the request has at the time of the call.
  using BlockTables = std::vector<std::vector<BlockId>>;

  // InvalidArgument names the option. `pool` and `clock` outlive it.
  static absl::StatusOr<std::unique_ptr<StoreScheduler>> Create(const kv::CacheConfig& config, store::Pool& pool,
                                                                connector::GroupNamespaces namespaces,
                                                                const StoreSchedulerOptions& options,
                                                                const Clock& clock);

  // Tokens past `num_computed` that a load can bring, 0 for none; nothing while the lookup runs: ask again in a later
  // step. The same answer, leased, until the request is allocated, preempted or finished.
  std::optional<Tokens> MatchedTokens(const std::string& request, const Hashes& hashes, Tokens num_tokens,
                                      Tokens num_computed);
  // Whether AwaitLookup could do anything.
  bool can_await() const;
  // After MatchedTokens gave nothing: may search in this thread or wait a little, so that asking again has an answer.
  void AwaitLookup(const std::string& request) { lookups_->Await(request); }
  // The engine has the blocks for `num_external` tokens of a load: all that was offered, or 0 when it, or another
  // connector, loads nothing of ours; then the lease ends. InvalidArgument for another number and for tables that
  // cannot hold the hit: since the engine waits for a load now, the step's plan has one that fails.
  absl::Status Allocated(const std::string& request, const BlockTables& blocks, Tokens num_external);
  void LoadDone(const std::string& request);
  void LoadFailed(const std::string& request);

  // A step: BeginStep, what it schedules, states and block tables, FinishStep.
  void BeginStep(const std::vector<std::string>& finished, const std::vector<std::string>& preempted);
  struct Prefill {
    Tokens num_prompt_tokens;
    Tokens end;        // The prompt, and after a preemption what was decoded before it.
    Tokens computed;   // Before the step.
    Tokens scheduled;  // In the step.
  };
  // `token_ids`: the request's tokens from the first one, with events; else empty.
  void ScheduledNew(const std::string& request, const Hashes& hashes, const Prefill& prefill,
                    std::span<const int32_t> token_ids);
  void ScheduledResumed(const std::string& request, const Hashes& hashes, Tokens num_tokens, Tokens computed,
                        Tokens scheduled, std::span<const int32_t> token_ids);
  // `num_tokens` exist now; 0 for no limit. An engine may schedule more than that, for tokens yet to be sampled.
  void ScheduledRunning(const std::string& request, const Hashes& hashes, Tokens num_tokens, Tokens computed,
                        Tokens scheduled, std::span<const int32_t> token_ids);
  // A recurrent state that the engine keeps for this step; dropped unless it can be of use.
  void BoundaryState(const std::string& request, const BoundaryPut& put);
  // Requests with a save in this step: each needs its current block tables.
  std::vector<std::string> SaveRequests() const;
  void CurrentBlocks(const std::string& request, BlockTables blocks);

  struct Pins {
    uint64_t job = 0;
    std::vector<BlockId> blocks;  // To pin now, until Completed returns them.
  };
  struct Step {
    StepPlan plan;
    std::vector<Pins> pins;
  };
  Step FinishStep();

  // The tail that a request leaves at its end, outside of steps; the next plan orders it. Nothing when there is nothing
  // to save. InvalidArgument when the states are not at one boundary.
  absl::StatusOr<std::optional<Pins>> FinishedPartialTail(const std::string& request, const Hashes& hashes,
                                                          Tokens num_prompt_tokens, Tokens computed, BlockTables blocks,
                                                          std::vector<BoundaryPut> states);

  // Blocks to unpin; empty while other workers are at work.
  std::vector<BlockId> Completed(uint64_t job, int64_t count) { return jobs_.Complete(job, count); }
  // Jobs that hold pins.
  size_t pending_jobs() const { return jobs_.size(); }

  // Forgets every answer and offer; for a pool that is about to be emptied.
  void Reset();
  // Ends lookups and leases; nothing is offered after it. Waits up to `patience` for a pool's call under way; false: as
  // BackgroundLookups::Stop has it.
  bool Close(absl::Duration patience = absl::InfiniteDuration()) { return lookups_->Stop(patience); }

  const SchedulerCounters& counters() const { return counters_; }
  // All of them and the lookups' totals, by name, in a fixed order.
  std::vector<std::pair<std::string_view, int64_t>> NamedCounters();
  LookupTotals lookup_totals() { return lookups_->totals(); }
  std::vector<LookupRecord> TakeOperations() { return lookups_->TakeOperations(); }
  // Without threads: does one thing of the background; false when there is none.
  bool RunPending() { return lookups_->RunPending(); }

 private:
  struct Request {
    enum class Load : uint8_t { kNone, kOffered, kAccepted, kOrdered };
    Load load = Load::kNone;
    bool never_again = false;  // A load failed.
    bool refusal_counted = false;
    bool allocated = false;
    bool known_to_workers = false;
    bool save_held = false;
    LookupAnswers::Answer hit;  // While a load is offered.
    LoadOrder order;            // Accepted; goes out with the step.
    LoadOutcome outcome;        // Of the last load, for the account.
    Tokens num_prompt_tokens;
    std::optional<SaveTracker> tracker;
    std::optional<std::pair<Tokens, Tokens>> unaccounted;  // Prompt and present tokens of a prefill whose load runs.
    Hashes hashes;                                         // As of the last step that scheduled it.
    int64_t hashes_sent = 0;
  };
  // A save order of this step, before its blocks are known.
  struct Pending {
    SaveOrder order;
    bool publish_tail = false;
    bool has_blocks = false;
  };

  StoreScheduler(const kv::CacheConfig& config, const StoreSchedulerOptions& options, const Clock& clock);

  bool saves_prefill() const { return options_.role != EngineRole::kConsumer; }
  bool IsState(kv::GroupIndex group) const;
  bool IsUsableState(const BoundaryPut& put) const;
  void Begin(const std::string& id, Request& request, const Hashes& hashes, const Prefill& prefill,
             std::span<const int32_t> token_ids);
  void Account(Request& request, Tokens prompt, Tokens present);
  void WatchForWriteOnly(const LookupTotals& lookups);
  void PlanSave(const std::string& id, Request& request);
  void DropOffer(const std::string& id, Request& request);
  void EndLoad(const std::string& id, bool failed);
  bool IsLoading(const Request& request) const;
  bool MayBeWrong() const { return options_.sync_loads && loading_ > 0; }
  // What the step computes is saved, now or when it is known to be right.
  void SaveOrHold(const std::string& id, Request& request);
  // Puts what the order's keys need of the request's hashes into it.
  absl::Status AddHashes(Request& request, const Hashes& hashes, SaveOrder& order);
  std::optional<Pins> Emit(Request& request, Pending& pending, StepPlan& plan);

  const kv::CacheConfig config_;
  const StoreSchedulerOptions options_;
  LogPace save_pace_;
  std::unique_ptr<BackgroundLookups> lookups_;
  PinnedJobs jobs_;
  std::map<std::string, Request, std::less<>> requests_;
  std::vector<std::string> accepted_;  // Loads of this step, in order.
  int64_t loading_ = 0;                // Loads that were accepted and have not ended.
  std::vector<Pending> pending_;       // In the order of the schedule.
  std::map<std::string, size_t, std::less<>> pending_of_;
  std::vector<SaveOrder> finish_tails_;
  StepPlan plan_;
  SchedulerCounters counters_;
};

}  // namespace tenure::engine
