// Random histories of an engine over a pool that is slow, fails and evicts, with loads in the background and loads that
// a step waits for, some of them of another size than was offered: what is loaded is leased, what failed is not offered
// again, orders continue each other, nothing is saved on top of bytes that may be wrong, pins and leases end, and every
// prompt token is accounted for once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/connector/prompt_pool_testing.h"
#include "tenure/engine/forwarding_pool.h"
#include "tenure/engine/store_scheduler.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using connector::testing::PromptPool;
using kv::testing::Config;
using kv::testing::Full;
using kv::testing::State;
using kv::testing::Window;

constexpr int kWorkers = 2;
constexpr int64_t kChunks = 12;
constexpr int64_t kBlock = 16;

// Counts the leases that somebody holds. (A pool may go on holding an object after a release that came too late.)
class CountingPool final : public ForwardingPool {
 public:
  using ForwardingPool::ForwardingPool;

  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override {
    TENURE_ASSIGN_OR_RETURN(store::Lease lease, ForwardingPool::AcquireLease(keys, ttl, answers));
    const MonotonicTime deadline = lease.deadline();
    held_.emplace(++last_, std::move(lease));
    return store::Lease(this, {{.index = last_}}, deadline);
  }
  size_t held() const { return held_.size(); }

 private:
  void ReleaseLease(std::span<const store::EntryRef> entries, MonotonicTime /*deadline*/) override {
    for (const store::EntryRef& entry : entries) held_.erase(entry.index);
  }

  std::map<uint32_t, store::Lease> held_;
  uint32_t last_ = 0;
};

// A request as the engine knows it.
struct Job {
  enum class Phase { kWaiting, kLoading, kReady, kRunning };
  Phase phase = Phase::kWaiting;
  int64_t prompt = 0;
  int64_t tokens = 0;    // With those decoded.
  int64_t computed = 0;  // Local, then loaded, then run.
  int64_t local = 0;
  int64_t hit = 0;                     // Where the load under way ends.
  bool refused = false;                // That load is another than was offered.
  bool overlaps = false;               // That load is synchronous: its end is told after the step has computed.
  std::optional<int64_t> unaccounted;  // Tokens of a prefill that was scheduled with such a load.
  int64_t failed_hit = 0;              // Where a load that failed would have ended.
  bool resumed = false;
  bool known = false;  // Had been scheduled before.
  bool load_failed = false;
  int64_t prefill_end = 0;
  int64_t hashes_sent = 0;
};

class Engine {
 public:
  Engine(const kv::CacheConfig& config, uint64_t seed, bool closed, bool sync_loads)
      : config_(config),
        random_(seed),
        sync_loads_(sync_loads),
        prompt_(config, kChunks * (kBlock / config.hash_block_size().value()),
                std::vector<int>(config.groups().size(), 2), closed) {
    StoreSchedulerOptions options;
    options.world_size = kWorkers;
    options.sync_loads = sync_loads;
    options.lookups.threads = 0;
    core_ = StoreScheduler::Create(config_, pool_, prompt_.namespaces(), options, prompt_.clock()).value();
    prompt_.pool().set_before_call([this](auto, auto) -> absl::Status {
      if (random_.Chance(0.05)) return absl::UnavailableError("away");
      if (random_.Chance(0.02)) throw std::runtime_error("thrown");
      return absl::OkStatus();
    });
    Fill();
  }

  void Step() {
    Background();
    if (jobs_.size() < 8) Arrive();
    for (auto& [id, job] : jobs_) Admit(id, job);
    Plan();
    EndLoads();
    ReportSaves();
    Check();
  }

  // Ends all requests and what is under way.
  void Drain() {
    prompt_.pool().set_before_call(nullptr);
    for (auto& [id, job] : jobs_) finished_.push_back(id);
    jobs_.clear();
    Plan();
    while (!pins_.empty()) ReportSaves();
    while (core_->RunPending()) continue;
    EXPECT_EQ(core_->pending_jobs(), 0u);
    EXPECT_EQ(pool_.held(), 0u) << "leases";
    const LookupTotals lookups = core_->lookup_totals();
    EXPECT_EQ(lookups.searches, lookups.hits + lookups.misses + lookups.misses_lost + lookups.misses_error +
                                    lookups.misses_deadline + lookups.unwanted);
    const TokenTotals& tokens = core_->counters().tokens;
    EXPECT_EQ(tokens.prompt, tokens.local + tokens.external + tokens.recomputed + tokens.computed);
    EXPECT_EQ(tokens.prompt, expected_.prompt);
    EXPECT_EQ(tokens.local, expected_.local);
    EXPECT_EQ(tokens.external, expected_.external);
    EXPECT_EQ(tokens.recomputed, expected_.recomputed);
    EXPECT_EQ(tokens.computed, expected_.computed);
    EXPECT_EQ(core_->counters().refused_loads_total, refused_loads_);
  }

  StoreScheduler& core() { return *core_; }

 private:
  StoreScheduler::Hashes Hashes() const { return {std::shared_ptr<void>(), &prompt_.hashes()}; }

  void Fill() {
    kv::testing::PresenceSet all;
    for (size_t group = 0; group < config_.groups().size(); ++group) {
      auto& hashes = all.groups.emplace_back();
      for (int64_t hash = 0; hash < prompt_.hashes().size(); ++hash) hashes.insert(hash);
    }
    prompt_.Insert(all);
  }

  // What happens besides the engine: time, searches, evictions of what nobody holds.
  void Background() {
    prompt_.clock().Advance(absl::Milliseconds(random_.Between(0, 400)));
    if (random_.Chance(0.01)) prompt_.clock().Advance(absl::Seconds(8));
    for (uint64_t i = random_.Below(6); i > 0; --i) core_->RunPending();
    if (random_.Chance(0.3)) {
      const auto keys = prompt_.pool().Keys();
      if (!keys.empty()) prompt_.pool().Evict(keys[random_.Below(keys.size())]);
    }
    if (random_.Chance(0.1)) Fill();
  }

  void Arrive() {
    Job job;
    job.prompt = job.tokens = random_.Between(1, kChunks * kBlock - 32);
    jobs_.emplace(std::to_string(next_id_++), job);
  }

  // The waiting part of a step: what vLLM asks before it schedules a request.
  void Admit(const std::string& id, Job& job) {
    if (random_.Chance(0.02)) return Finish(id);
    if (job.phase != Job::Phase::kWaiting) return;
    // Preempted in the step after its load; a step later at most the workers' reports are there.
    if (job.overlaps) EndOverlappingLoad(id, job);
    const int64_t local = random_.Chance(0.5) ? 0 : random_.Between(0, (job.tokens - 1) / kBlock) * kBlock;
    const auto found = core_->MatchedTokens(id, Hashes(), Tokens(job.tokens), Tokens(local));
    if (!found) return;
    ASSERT_TRUE(!job.load_failed || found->value() == 0) << "request " << id << " whose load had failed";
    ASSERT_LT(local + found->value(), job.tokens);
    if (random_.Chance(0.3)) return;  // No room for it.
    Take(id, job, local, found->value());
  }

  // The engine has blocks for the request, and for the load that was offered, for none, or for another one.
  void Take(const std::string& id, Job& job, int64_t local, int64_t offered) {
    int64_t external = random_.Chance(0.2) ? 0 : offered;
    StoreScheduler::BlockTables tables = Tables();
    job.refused = external == offered && local + offered + kBlock < job.tokens && random_.Chance(0.05);
    if (job.refused && offered > 0 && random_.Chance(0.5)) {
      tables.pop_back();
    } else if (job.refused) {
      external += kBlock;
    }
    refused_loads_ += job.refused;
    ASSERT_EQ(core_->Allocated(id, tables, Tokens(external)).ok(), !job.refused);
    job.computed = local + external;
    // Without an offer it is not known what the engine has: all of it fails.
    job.local = job.refused && offered == 0 ? 0 : local;
    job.hit = job.local + external;
    job.overlaps = external > 0 && sync_loads_;
    job.phase = external > 0 && !sync_loads_ ? Job::Phase::kLoading : Job::Phase::kReady;
  }

  StoreScheduler::BlockTables Tables() {
    StoreScheduler::BlockTables tables;
    for (const kv::GroupSpec& group : config_.groups()) {
      auto& table = tables.emplace_back();
      for (int64_t i = 0; i < kChunks * kBlock / group.block_size.value(); ++i)
        table.push_back(next_block_++ % 5000 + 1);
    }
    return tables;
  }

  void Plan() {
    std::vector<std::string> preempted;
    for (auto& [id, job] : jobs_) {
      if (job.phase != Job::Phase::kRunning || !random_.Chance(0.05)) continue;
      preempted.push_back(id);
      job.phase = Job::Phase::kWaiting;
      job.computed = job.hashes_sent = 0;
      job.resumed = true;
      job.unaccounted.reset();
    }
    for (const std::string& id : finished_) jobs_.erase(id);
    core_->BeginStep(finished_, preempted);
    finished_.clear();
    for (auto& [id, job] : jobs_) Schedule(id, job);
    for (const std::string& id : core_->SaveRequests()) {
      if (!random_.Chance(0.02)) core_->CurrentBlocks(id, Tables());
    }
    const StoreScheduler::Step step = core_->FinishStep();
    for (const LoadOrder& order : step.plan.loads) CheckLoad(order);
    for (const auto& [id, job] : jobs_) {
      ASSERT_TRUE(!job.overlaps || step.plan.saves.empty()) << "saves while the load of " << id << " may be wrong";
      ASSERT_TRUE(job.phase != Job::Phase::kLoading || loading_.contains(id)) << id << " waits for a load nobody makes";
    }
    for (const SaveOrder& order : step.plan.saves) CheckSave(order);
    for (const StoreScheduler::Pins& pins : step.pins) {
      ASSERT_TRUE(pins_.emplace(pins.job, std::pair(pins.blocks, kWorkers)).second) << "a job id came twice";
    }
  }

  void Schedule(const std::string& id, Job& job) {
    if (job.phase == Job::Phase::kReady) {
      if (job.overlaps) {
        job.unaccounted = job.tokens;
      } else {
        Account(job.tokens, job.local, job.computed, job.failed_hit);
      }
      job.failed_hit = 0;
      const int64_t scheduled = random_.Between(1, job.tokens - job.computed);
      job.prefill_end = job.tokens;
      if (job.resumed && job.known && random_.Chance(0.5)) {
        core_->ScheduledResumed(id, Hashes(), Tokens(job.tokens), Tokens(job.computed), Tokens(scheduled), {});
      } else {
        core_->ScheduledNew(id, Hashes(),
                            {Tokens(job.prompt), Tokens(job.tokens), Tokens(job.computed), Tokens(scheduled)}, {});
      }
      job.known = true;
      job.computed += scheduled;
      job.phase = Job::Phase::kRunning;
    } else if (job.phase == Job::Phase::kRunning) {
      const bool decodes = job.computed >= job.tokens;
      if (decodes && job.tokens + 1 > kChunks * kBlock) return Finish(id);
      job.tokens += decodes;
      const int64_t scheduled = decodes ? 1 : random_.Between(1, job.tokens - job.computed);
      core_->ScheduledRunning(id, Hashes(), Tokens(job.tokens), Tokens(job.computed), Tokens(scheduled), {});
      job.computed += scheduled;
      if (config_.groups().back().kind == kv::GroupKind::kState && random_.Chance(0.3)) {
        core_->BoundaryState(id, {kv::GroupIndex(static_cast<int32_t>(config_.groups().size()) - 1), 7,
                                  Tokens(random_.Between(0, job.computed))});
      }
    }
  }

  void Finish(const std::string& id) {
    if (std::find(finished_.begin(), finished_.end(), id) == finished_.end()) finished_.push_back(id);
  }

  // The lease promises that what is ordered is there until the load begins.
  void CheckLoad(const LoadOrder& order) {
    loading_.insert(order.request);
    const Job& job = jobs_.at(order.request);
    ASSERT_EQ(order.refused, job.refused) << "request " << order.request;
    if (order.refused) return;
    for (const LoadChunk& chunk : order.chunks) {
      for (const kv::NamespaceId name_space : prompt_.namespaces()[static_cast<size_t>(chunk.group.value())]) {
        ASSERT_TRUE(prompt_.pool().IsHeld({name_space, chunk.hash})) << "request " << order.request;
      }
    }
  }

  void CheckSave(const SaveOrder& order) {
    Job& job = jobs_.at(order.request);
    ASSERT_EQ(order.first_hash, job.hashes_sent) << "request " << order.request;
    ASSERT_LE(order.length.value(), job.computed);
    ASSERT_EQ(order.length % config_.scheduler_block_size(), Tokens());
    ASSERT_EQ(order.prefill_end.value(), job.prefill_end);
    for (size_t i = 0; i < order.hashes.size(); ++i) {
      kv::BlockHash expected;
      const kv::HashIndex index(order.first_hash + static_cast<int64_t>(i));
      ASSERT_TRUE(prompt_.hashes().Read({&index, 1}, {&expected, 1}).ok());
      ASSERT_EQ(order.hashes[i], expected);
    }
    job.hashes_sent += static_cast<int64_t>(order.hashes.size());
    Tokens end = order.length;
    for (const BoundaryPut& put : order.boundary_puts) end = std::max(end, put.tokens);
    ASSERT_GE(job.hashes_sent, end / config_.hash_block_size());
  }

  void EndLoads() {
    for (auto& [id, job] : jobs_) {
      if (!loading_.contains(id) || !random_.Chance(sync_loads_ ? 0.7 : 0.4)) continue;
      if (job.overlaps) {
        EndOverlappingLoad(id, job);
      } else if (job.phase == Job::Phase::kLoading) {
        EndBackgroundLoad(id, job);
      }
    }
  }

  // What the workers tell of a load. A refused one they always fail.
  bool ReportLoad(const std::string& id, Job& job) {
    loading_.erase(id);
    if (!job.refused && random_.Chance(0.7)) {
      core_->LoadDone(id);
      return true;
    }
    core_->LoadFailed(id);
    if (random_.Chance(0.3)) core_->LoadDone(id);  // A late report of another worker.
    job.load_failed = true;
    return false;
  }

  // What came before a bad block is kept; of a refused load every block is bad.
  int64_t KeptOf(const Job& job) {
    return job.refused ? job.local : job.local + random_.Between(0, (job.hit - job.local - 1) / kBlock) * kBlock;
  }

  void EndBackgroundLoad(const std::string& id, Job& job) {
    job.phase = Job::Phase::kReady;
    if (ReportLoad(id, job)) return;
    job.failed_hit = job.hit;
    job.computed = random_.Chance(0.5) ? 0 : KeptOf(job);
    // With nothing left the engine asks anew.
    if (job.computed == 0) job.phase = Job::Phase::kWaiting;
  }

  // The step has computed past it already, and the engine goes back to what it has; unless it was preempted since.
  void EndOverlappingLoad(const std::string& id, Job& job) {
    job.overlaps = false;
    const bool done = ReportLoad(id, job);
    if (!job.unaccounted) {
      job.failed_hit = done ? 0 : job.hit;
      return;
    }
    const int64_t prompt = *std::exchange(job.unaccounted, std::nullopt);
    if (done) return Account(prompt, job.local, job.hit, 0);
    Account(prompt, job.local, job.local, job.hit);
    job.computed = KeptOf(job);
  }

  // Where each token of a prefill comes from, one by one.
  void Account(int64_t prompt, int64_t local, int64_t present, int64_t failed_hit) {
    expected_.prompt += prompt;
    for (int64_t token = 0; token < prompt; ++token) {
      if (token < present) {
        ++(token < local ? expected_.local : expected_.external);
      } else {
        ++(token < failed_hit ? expected_.recomputed : expected_.computed);
      }
    }
  }

  void ReportSaves() {
    for (auto job = pins_.begin(); job != pins_.end();) {
      auto& [blocks, waiting] = job->second;
      if (!random_.Chance(0.5)) {
        ++job;
        continue;
      }
      const int64_t count = random_.Between(1, waiting);
      waiting -= static_cast<int>(count);
      const std::vector<BlockId> freed = core_->Completed(job->first, count);
      ASSERT_EQ(freed, waiting == 0 ? blocks : std::vector<BlockId>());
      job = waiting == 0 ? pins_.erase(job) : std::next(job);
    }
  }

  void Check() { ASSERT_EQ(core_->pending_jobs(), pins_.size()); }

  const kv::CacheConfig& config_;
  Random random_;
  const bool sync_loads_;
  PromptPool prompt_;
  CountingPool pool_{prompt_.pool()};
  std::unique_ptr<StoreScheduler> core_;
  std::map<std::string, Job> jobs_;
  std::vector<std::string> finished_;
  std::set<std::string> loading_;
  std::map<uint64_t, std::pair<std::vector<BlockId>, int>> pins_;
  TokenTotals expected_;
  int64_t refused_loads_ = 0;
  int64_t next_id_ = 0;
  int32_t next_block_ = 0;
};

struct Case {
  const char* name;
  kv::CacheConfig config;
};
std::vector<Case> Cases() {
  return {{"full", Config(16, 16, false, {Full(16)})},
          {"window", Config(8, 16, false, {Full(16), Window(8, 24)})},
          {"state", Config(16, 16, false, {Full(16), State(16)})},
          {"fine", Config(4, 16, true, {Full(16), State(16)})},
          {"eagle", Config(16, 16, false, {Full(16, true), Window(16, 32, true)})}};
}

// What happened in the histories of one way of loading.
struct Seen {
  int64_t ordered = 0;
  int64_t refused = 0;
  int64_t recomputed = 0;
};

void RunHistories(const Case& c, bool sync_loads, Seen& seen) {
  for (const bool closed : {false, true}) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(::testing::Message() << c.name << (closed ? " closed" : " independent") << " seed " << seed);
      Engine engine(c.config, seed, closed, sync_loads);
      for (int step = 0; step < 300; ++step) {
        engine.Step();
        if (::testing::Test::HasFatalFailure()) return;
      }
      engine.Drain();
      if (::testing::Test::HasFailure()) return;
      const SchedulerCounters& counters = engine.core().counters();
      seen.ordered += counters.load_orders_total;
      seen.refused += counters.refused_loads_total;
      seen.recomputed += counters.tokens.recomputed;
      EXPECT_GT(counters.save_orders_total, 50);
      EXPECT_GT(counters.tokens.computed, 0);
    }
  }
}

class StoreSchedulerRandomTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SyncLoads, StoreSchedulerRandomTest, ::testing::Bool());

TEST_P(StoreSchedulerRandomTest, HistoriesKeepEveryPromise) {
  Seen seen;
  for (const Case& c : Cases()) {
    RunHistories(c, GetParam(), seen);
    if (HasFailure()) return;
  }
  EXPECT_GT(seen.ordered, 1000);
  EXPECT_GT(seen.refused, 100);
  EXPECT_GT(seen.recomputed, 1000);
}

}  // namespace
}  // namespace tenure::engine
