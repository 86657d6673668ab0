// The scheduler's side call by call: offers and loads, save orders and their pins, failures, preemption.
#include "tenure/engine/store_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
#include "tenure/connector/prompt_pool_testing.h"
#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using connector::testing::PromptPool;
using kv::testing::Config;
using kv::testing::Full;
using kv::testing::PresenceSet;
using kv::testing::State;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Blocks = std::vector<BlockId>;
using Tables = StoreScheduler::BlockTables;

const kv::CacheConfig& Coarse() {
  static const kv::CacheConfig config = Config(16, 16, false, {Full(16)});
  return config;
}
const kv::CacheConfig& Hybrid() {
  static const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  return config;
}
const kv::CacheConfig& Fine() {
  static const kv::CacheConfig config = Config(4, 16, true, {Full(4), State(16)});
  return config;
}

StoreSchedulerOptions Options(EngineRole role = EngineRole::kBoth) {
  StoreSchedulerOptions options;
  options.role = role;
  options.lookups.threads = 0;
  return options;
}

// An engine's glue over one prompt's pool. Every request has the same hashes.
class Glue {
 public:
  Glue(const kv::CacheConfig& config, int64_t num_hashes, const StoreSchedulerOptions& options = Options())
      : prompt_(config, num_hashes, std::vector<int>(config.groups().size(), 1), false) {
    auto core = StoreScheduler::Create(config, prompt_.pool(), prompt_.namespaces(), options, prompt_.clock());
    EXPECT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
  }

  // What is offered, -1 while the lookup runs.
  int64_t Matched(const std::string& request, int64_t tokens, int64_t computed = 0) {
    const auto found = core_->MatchedTokens(request, hashes(), Tokens(tokens), Tokens(computed));
    return found ? found->value() : -1;
  }
  int64_t MatchedAtLast(const std::string& request, int64_t tokens, int64_t computed = 0) {
    Matched(request, tokens, computed);
    Run();
    return Matched(request, tokens, computed);
  }
  void Run() {
    while (core_->RunPending()) continue;
  }
  absl::Status Allocated(const std::string& request, const Tables& tables, int64_t external) {
    return core_->Allocated(request, tables, Tokens(external));
  }
  void New(const std::string& request, int64_t prompt, int64_t computed, int64_t scheduled,
           const std::vector<int32_t>& ids = {}) {
    core_->ScheduledNew(request, hashes(), {Tokens(prompt), Tokens(prompt), Tokens(computed), Tokens(scheduled)}, ids);
  }
  void Running(const std::string& request, int64_t tokens, int64_t computed, int64_t scheduled,
               const std::vector<int32_t>& ids = {}) {
    core_->ScheduledRunning(request, hashes(), Tokens(tokens), Tokens(computed), Tokens(scheduled), ids);
  }
  // Ends a step in which every save gets `tables`.
  StoreScheduler::Step Finish(const Tables& tables = {{1, 2, 3, 4, 5, 6, 7, 8}}) {
    for (const std::string& request : core_->SaveRequests()) core_->CurrentBlocks(request, tables);
    StoreScheduler::Step step = core_->FinishStep();
    const auto read = DecodeStepPlan(EncodeStepPlan(step.plan));
    EXPECT_TRUE(read.ok() && *read == step.plan);
    return step;
  }
  // A whole load of what is offered.
  void Load(const std::string& request, int64_t tokens, const Tables& tables) {
    const int64_t offered = MatchedAtLast(request, tokens);
    ASSERT_GT(offered, 0);
    ASSERT_TRUE(Allocated(request, tables, offered).ok());
    core_->BeginStep({}, {});
    ASSERT_EQ(Finish().plan.loads.size(), 1u);
  }
  bool AnyLeased() {
    Run();
    const auto keys = prompt_.pool().Keys();
    return std::any_of(keys.begin(), keys.end(), [this](const auto& key) { return prompt_.pool().IsLeased(key); });
  }
  void Insert(const PresenceSet& presence) { prompt_.Insert(presence); }

  StoreScheduler::Hashes hashes() const { return {std::shared_ptr<void>(), &prompt_.hashes()}; }
  std::vector<kv::BlockHash> HashesFrom(int64_t first, int64_t end) const {
    std::vector<kv::HashIndex> indices;
    for (int64_t i = first; i < end; ++i) indices.emplace_back(i);
    std::vector<kv::BlockHash> hashes(indices.size());
    EXPECT_TRUE(prompt_.hashes().Read(indices, hashes).ok());
    return hashes;
  }
  StoreScheduler& core() { return *core_; }
  PromptPool& prompt() { return prompt_; }
  const SchedulerCounters& counters() { return core_->counters(); }

 private:
  PromptPool prompt_;
  std::unique_ptr<StoreScheduler> core_;
};

const PresenceSet kFour = {.groups = {{0, 1, 2, 3}}};

TEST(StoreSchedulerTest, OffersWhatIsPastTheComputedTokens) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  EXPECT_EQ(glue.Matched("a", 64), -1);
  glue.Run();
  EXPECT_EQ(glue.Matched("a", 64), 48) << "a token must be left to compute";
  EXPECT_EQ(glue.Matched("a", 64, 32), 16);
  EXPECT_EQ(glue.Matched("a", 64, 48), 0);
  EXPECT_EQ(glue.MatchedAtLast("b", 65), 64);
  EXPECT_EQ(glue.Matched("c", 15), 0) << "shorter than a hit can be";
  EXPECT_EQ(glue.core().lookup_totals().searches, 2);
}

TEST(StoreSchedulerTest, LooksNothingUpWhereItIsNotToLoad) {
  StoreSchedulerOptions options = Options(EngineRole::kConsumer);
  options.enable_lookup = false;
  Glue glue(Coarse(), 8, options);
  glue.Insert(kFour);
  EXPECT_EQ(glue.Matched("a", 65), 0);
  EXPECT_TRUE(glue.Allocated("a", {}, 0).ok());
  glue.New("a", 65, 0, 65);
  EXPECT_TRUE(glue.Finish().plan.empty()) << "capacity only";
  EXPECT_EQ(glue.core().lookup_totals().searches, 0);
}

TEST(StoreSchedulerTest, LoadIsOrderedOnceAndItsLeaseEndsWithIt) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("a", 65, 16), 48);
  ASSERT_TRUE(glue.Allocated("a", {{1, 2, 3, 4, 5}}, 48).ok());
  glue.core().BeginStep({}, {});
  const StoreScheduler::Step step = glue.Finish();
  ASSERT_EQ(step.plan.loads.size(), 1u);
  const LoadOrder& order = step.plan.loads[0];
  const auto hashes = glue.HashesFrom(0, 4);
  const kv::GroupIndex group(0);
  EXPECT_EQ(
      order,
      (LoadOrder{"a", Tokens(16), Tokens(64), {{group, 2, hashes[1]}, {group, 3, hashes[2]}, {group, 4, hashes[3]}}}));
  EXPECT_TRUE(step.pins.empty());
  EXPECT_TRUE(glue.Finish().plan.empty());
  EXPECT_TRUE(glue.AnyLeased());
  glue.core().LoadDone("a");
  EXPECT_FALSE(glue.AnyLeased());
  EXPECT_EQ(glue.counters().done_loads_total, 1);
}

TEST(StoreSchedulerTest, LeaseOfALoadUnderWayIsRenewed) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  glue.Load("a", 65, {{1, 2, 3, 4, 5}});
  for (int i = 0; i < 5; ++i) {
    glue.prompt().clock().Advance(absl::Seconds(6));
    EXPECT_TRUE(glue.AnyLeased());
  }
}

TEST(StoreSchedulerTest, AnotherConnectorsLoadReleasesTheLease) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("a", 65), 64);
  EXPECT_TRUE(glue.AnyLeased());
  EXPECT_TRUE(glue.Allocated("a", {}, 0).ok());
  EXPECT_FALSE(glue.AnyLeased());
  EXPECT_TRUE(glue.Finish().plan.empty());
}

TEST(StoreSchedulerTest, AnotherNumberThanOfferedIsRefusedByTextAndOrderedToFail) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("a", 65, 16), 48);
  EXPECT_THAT(Message(glue.Allocated("a", {{1, 2, 0, 4, 5}}, 32)),
              HasSubstr("num_external is 32 for request a, which was offered 48"));
  EXPECT_THAT(Message(glue.Allocated("b", {{1, 2, 3, 4, 5}}, 16)), HasSubstr("was offered 0"));
  ASSERT_EQ(glue.MatchedAtLast("c", 65), 64);
  EXPECT_THAT(Message(glue.Allocated("c", {{1, 2}}, 64)), HasSubstr("blocks[0] has 2 blocks"));
  EXPECT_FALSE(glue.AnyLeased());
  EXPECT_EQ(glue.counters().refused_loads_total, 3);
  const std::vector<LoadOrder> loads = glue.Finish().plan.loads;
  ASSERT_EQ(loads.size(), 3u) << "the engine waits for each";
  const std::vector<Blocks> expected = {{2, 4, 5}, {1, 2, 3, 4, 5}, {1, 2}};
  for (size_t i = 0; i < loads.size(); ++i) {
    EXPECT_TRUE(loads[i].refused);
    Blocks blocks;
    for (const LoadChunk& chunk : loads[i].chunks) blocks.push_back(chunk.block);
    EXPECT_EQ(blocks, expected[i]) << "nothing that the engine computed itself";
  }
  glue.core().LoadFailed("a");
  EXPECT_EQ(glue.MatchedAtLast("a", 65), 0);
}

// A step with a synchronous load computes on bytes that may turn out to be wrong.
TEST(StoreSchedulerTest, NothingIsSavedWhileASynchronousLoadIsUnderWay) {
  StoreSchedulerOptions options = Options();
  options.sync_loads = true;
  Glue glue(Coarse(), 8, options);
  glue.Insert(kFour);
  const Tables tables = {{1, 2, 3, 4, 5, 6, 7, 8}};
  ASSERT_EQ(glue.MatchedAtLast("a", 100), 64);
  ASSERT_TRUE(glue.Allocated("a", {{1, 2, 3, 4, 5, 6, 7}}, 64).ok());
  ASSERT_TRUE(glue.Allocated("other", {}, 0).ok());
  glue.core().BeginStep({}, {});
  glue.New("a", 100, 64, 36);
  glue.New("other", 64, 16, 48);  // May stand on blocks that the load of the first fills.
  EXPECT_THAT(glue.Finish(tables).plan.saves, IsEmpty());
  glue.core().BeginStep({}, {});
  glue.Running("a", 101, 100, 1);
  EXPECT_THAT(glue.Finish(tables).plan.saves, IsEmpty()) << "its end is not known yet";
  glue.core().LoadDone("a");
  glue.core().BeginStep({}, {});
  glue.Running("a", 102, 101, 1);
  glue.Running("other", 65, 64, 1);
  const std::vector<SaveOrder> saves = glue.Finish(tables).plan.saves;
  ASSERT_EQ(saves.size(), 2u) << "held, not lost";
  EXPECT_EQ(saves[0].length, Tokens(96));
  EXPECT_EQ(saves[1].length, Tokens(64));
  EXPECT_EQ(glue.counters().tokens.external, 64);
}

TEST(StoreSchedulerTest, WhatAFailedSynchronousLoadLeavesIsSavedOnlyAsItIsComputedAnew) {
  StoreSchedulerOptions options = Options();
  options.sync_loads = true;
  Glue glue(Coarse(), 8, options);
  glue.Insert(kFour);
  const Tables tables = {{1, 2, 3, 4, 5, 6, 7, 8}};
  ASSERT_EQ(glue.MatchedAtLast("a", 100), 64);
  ASSERT_TRUE(glue.Allocated("a", {{1, 2, 3, 4, 5, 6, 7}}, 64).ok());
  glue.core().BeginStep({}, {});
  glue.New("a", 100, 64, 36);
  glue.Finish(tables);
  glue.core().LoadFailed("a");
  // The second block was lost: the engine goes on from 16 tokens, 32 a step.
  for (const int64_t computed : {16, 48, 80}) {
    glue.core().BeginStep({}, {});
    glue.Running("a", 100, computed, std::min<int64_t>(32, 100 - computed));
    const std::vector<SaveOrder> saves = glue.Finish(tables).plan.saves;
    ASSERT_EQ(saves.size(), 1u);
    EXPECT_EQ(saves[0].length, RoundDown(Tokens(std::min<int64_t>(computed + 32, 100)), Tokens(16)));
  }
}

TEST(StoreSchedulerTest, TokensThatAreScheduledAheadAreNotSaved) {
  StoreSchedulerOptions options = Options();
  options.save_decode_cache = true;
  Glue glue(Coarse(), 8, options);
  glue.New("a", 30, 0, 30);
  glue.Finish();
  glue.core().BeginStep({}, {});
  glue.Running("a", 31, 30, 5);  // Four of them are guesses.
  EXPECT_THAT(glue.Finish().plan.saves, IsEmpty());
  glue.core().BeginStep({}, {});
  glue.Running("a", 34, 33, 1);  // Three tokens more than scheduled: guesses that came true.
  const std::vector<SaveOrder> saves = glue.Finish().plan.saves;
  ASSERT_EQ(saves.size(), 1u);
  EXPECT_EQ(saves[0].length, Tokens(32));
}

TEST(StoreSchedulerTest, AnEngineThatOnlyWritesRaisesOneAlarm) {
  Glue glue(Coarse(), 8);
  const auto alarms = [&] {
    for (const auto& [name, value] : glue.core().NamedCounters())
      if (name == "write_only_alarms_total") return value;
    return int64_t{-1};
  };
  glue.New("a", 64, 0, 64);
  glue.Finish();
  for (int64_t i = 0; i < StoreScheduler::kWriteOnlyLookups; ++i) {
    EXPECT_EQ(alarms(), 0);
    ASSERT_EQ(glue.MatchedAtLast(std::to_string(i), 65), 0);
  }
  EXPECT_EQ(alarms(), 1);
  EXPECT_EQ(alarms(), 1);
}

TEST(StoreSchedulerTest, AHitOrNoSaveIsNoAlarm) {
  for (const bool hits : {true, false}) {
    Glue glue(Coarse(), 8);
    if (hits) {
      glue.Insert(kFour);
      glue.New("a", 64, 0, 64);
      glue.Finish();
    }
    for (int64_t i = 0; i < StoreScheduler::kWriteOnlyLookups; ++i) glue.MatchedAtLast(std::to_string(i), 65);
    glue.core().NamedCounters();
    EXPECT_EQ(glue.counters().write_only_alarms_total, 0);
  }
}

TEST(StoreSchedulerTest, ARequestWhoseLoadFailedIsNeverOfferedAgain) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  glue.Load("a", 65, {{1, 2, 3, 4, 5}});
  glue.core().LoadFailed("a");
  EXPECT_FALSE(glue.AnyLeased());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(glue.MatchedAtLast("a", 65), 0) << "the pool still has it, and would fail again";
  glue.core().BeginStep({}, {"a"});
  EXPECT_EQ(glue.MatchedAtLast("a", 70), 0) << "not after a preemption either";
  EXPECT_EQ(glue.counters().failed_loads_total, 1);
  EXPECT_EQ(glue.counters().refused_after_failure_total, 1);
  glue.core().BeginStep({"a"}, {});
  EXPECT_EQ(glue.MatchedAtLast("a", 65), 64) << "another request of that name";
}

TEST(StoreSchedulerTest, FinishedRequestsLeaveNothing) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("waits", 65), 64);
  glue.Load("loads", 65, {{1, 2, 3, 4, 5}});
  ASSERT_EQ(glue.MatchedAtLast("accepted", 65), 64);
  ASSERT_TRUE(glue.Allocated("accepted", {{1, 2, 3, 4, 5}}, 64).ok());
  glue.core().BeginStep({"waits", "accepted", "loads", "unknown"}, {});
  const StepPlan plan = glue.Finish().plan;
  EXPECT_THAT(plan.finished, ElementsAre("loads")) << "the only one that the workers know";
  EXPECT_THAT(plan.loads, IsEmpty());
  EXPECT_FALSE(glue.AnyLeased());
}

TEST(StoreSchedulerTest, PrefillIsSavedBlockByBlockWithItsHashesOnce) {
  Glue glue(Coarse(), 8);
  ASSERT_TRUE(glue.Allocated("a", {}, 0).ok());
  glue.core().BeginStep({}, {});
  glue.New("a", 100, 0, 40);
  EXPECT_THAT(glue.core().SaveRequests(), ElementsAre("a"));
  StoreScheduler::Step step = glue.Finish({{1, 2, 3}});
  ASSERT_EQ(step.plan.saves.size(), 1u);
  SaveOrder first = step.plan.saves[0];
  EXPECT_EQ(first.length, Tokens(32));
  EXPECT_EQ(first.prefill_end, Tokens(100));
  EXPECT_EQ(first.first_hash, 0);
  EXPECT_EQ(first.hashes, glue.HashesFrom(0, 2));
  EXPECT_EQ(first.blocks, (Tables{{1, 2, 3}}));
  ASSERT_EQ(step.pins.size(), 1u);
  EXPECT_EQ(step.pins[0].job, first.job);
  EXPECT_EQ(step.pins[0].blocks, (Blocks{1, 2, 3}));
  glue.Running("a", 100, 40, 7);
  EXPECT_TRUE(glue.Finish().plan.empty());
  glue.Running("a", 100, 47, 53);
  step = glue.Finish();
  ASSERT_EQ(step.plan.saves.size(), 1u);
  EXPECT_EQ(step.plan.saves[0].length, Tokens(96));
  EXPECT_EQ(step.plan.saves[0].first_hash, 2);
  EXPECT_EQ(step.plan.saves[0].hashes, glue.HashesFrom(2, 6));
  EXPECT_NE(step.plan.saves[0].job, first.job);
  glue.Running("a", 101, 100, 1);
  EXPECT_TRUE(glue.Finish().plan.empty()) << "decoded tokens are not saved";
}

TEST(StoreSchedulerTest, PinsGoWhenEveryWorkerHasReported) {
  StoreSchedulerOptions options = Options();
  options.world_size = 2;
  Glue glue(Coarse(), 8, options);
  glue.New("a", 64, 0, 64);
  const uint64_t job = glue.Finish({{4, 0, 6, 7}}).pins.at(0).job;
  glue.core().BeginStep({"a"}, {});
  EXPECT_EQ(glue.core().pending_jobs(), 1u) << "the end of the request changes nothing";
  EXPECT_EQ(glue.core().Completed(job, 1), Blocks());
  EXPECT_EQ(glue.core().Completed(job, 1), (Blocks{4, 6, 7}));
  EXPECT_EQ(glue.core().pending_jobs(), 0u);
}

TEST(StoreSchedulerTest, AStepThatLoadsDoesNotSave) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("a", 100), 64);
  ASSERT_TRUE(glue.Allocated("a", {{1, 2, 3, 4, 5, 6, 7}}, 64).ok());
  glue.core().BeginStep({}, {});
  glue.New("a", 100, 64, 36);
  const StepPlan plan = glue.Finish().plan;
  EXPECT_EQ(plan.loads.size(), 1u);
  EXPECT_THAT(plan.saves, IsEmpty());
  glue.core().LoadDone("a");
  glue.Running("a", 101, 100, 1);
  EXPECT_EQ(glue.counters().tokens.external, 64);
  EXPECT_EQ(glue.counters().tokens.computed, 36);
}

TEST(StoreSchedulerTest, PreemptedRequestBeginsAnew) {
  Glue glue(Coarse(), 8);
  glue.New("a", 64, 0, 64);
  glue.Finish();
  glue.core().BeginStep({}, {"a", "unknown"});
  glue.core().BoundaryState("a", {kv::GroupIndex(0), 1, Tokens(16)});
  StoreScheduler::Step step = glue.Finish();
  EXPECT_THAT(step.plan.preempted, ElementsAre("a"));
  EXPECT_THAT(step.plan.saves, IsEmpty());
  // It computed 6 tokens more before, and prefills all of them now.
  glue.core().ScheduledResumed("a", glue.hashes(), Tokens(70), Tokens(0), Tokens(70), {});
  step = glue.Finish();
  ASSERT_EQ(step.plan.saves.size(), 1u);
  EXPECT_EQ(step.plan.saves[0].length, Tokens(64));
  EXPECT_EQ(step.plan.saves[0].prefill_end, Tokens(70));
  EXPECT_EQ(step.plan.saves[0].first_hash, 0) << "the workers have forgotten them";
  EXPECT_EQ(step.plan.saves[0].hashes.size(), 4u);
}

TEST(StoreSchedulerTest, DecodedTokensAreSavedOnlyWhereAsked) {
  StoreSchedulerOptions options = Options(EngineRole::kConsumer);
  options.save_decode_cache = true;
  Glue glue(Coarse(), 8, options);
  glue.New("a", 40, 0, 40);
  EXPECT_TRUE(glue.Finish().plan.empty()) << "a consumer saves no prefill";
  glue.Running("a", 41, 40, 1);
  ASSERT_EQ(glue.core().SaveRequests().size(), 1u);
  EXPECT_EQ(glue.Finish().plan.saves.at(0).length, Tokens(32));
  // Seven are scheduled, six exist.
  glue.Running("a", 47, 41, 7);
  EXPECT_TRUE(glue.Finish().plan.empty());
  glue.Running("a", 48, 47, 1);
  EXPECT_EQ(glue.Finish().plan.saves.at(0).length, Tokens(48));

  Glue plain(Coarse(), 8, Options(EngineRole::kConsumer));
  plain.New("a", 40, 0, 40);
  plain.Running("a", 48, 40, 8);
  EXPECT_TRUE(plain.Finish().plan.empty());
}

TEST(StoreSchedulerTest, EventsCarryTheTokensOfEachOrder) {
  StoreSchedulerOptions options = Options();
  options.events = true;
  Glue glue(Coarse(), 8, options);
  std::vector<int32_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  glue.New("a", 64, 0, 40, ids);
  EXPECT_EQ(glue.Finish().plan.saves.at(0).tokens, (TokenWindow{Tokens(0), {ids.begin(), ids.begin() + 32}}));
  glue.Running("a", 64, 40, 24, ids);
  EXPECT_EQ(glue.Finish().plan.saves.at(0).tokens, (TokenWindow{Tokens(32), {ids.begin() + 32, ids.end()}}));
}

TEST(StoreSchedulerTest, StatesRideTheSaveOrGoAlone) {
  Glue glue(Hybrid(), 8);
  const kv::GroupIndex state(1);
  ASSERT_TRUE(glue.Allocated("a", {}, 0).ok());
  glue.New("a", 64, 0, 40);
  glue.core().BoundaryState("a", {state, 22, Tokens(32)});
  StoreScheduler::Step step = glue.Finish({{1, 2, 3}, {0, 22, 23}});
  ASSERT_EQ(step.plan.saves.size(), 1u);
  EXPECT_THAT(step.plan.saves[0].boundary_puts, ElementsAre(BoundaryPut{state, 22, Tokens(32)}));
  EXPECT_EQ(step.pins.at(0).blocks, (Blocks{22, 1, 2, 3}));
  glue.Running("a", 64, 40, 5);
  glue.core().BoundaryState("a", {state, 23, Tokens(48)});
  step = glue.Finish({{1, 2, 3}, {0, 22, 23}});
  ASSERT_EQ(step.plan.saves.size(), 1u);
  EXPECT_EQ(step.plan.saves[0].length, Tokens());
  EXPECT_EQ(step.plan.saves[0].hashes, glue.HashesFrom(2, 3));
  EXPECT_EQ(step.pins.at(0).blocks, Blocks{23});
}

// vllm#56972: without them a model with states finds nothing of what it has generated.
TEST(StoreSchedulerTest, StatesOfDecodedTokensAreSavedWhereTheTokensAre) {
  const kv::GroupIndex state(1);
  for (const bool save_decode_cache : {false, true}) {
    for (const EngineRole role : {EngineRole::kBoth, EngineRole::kConsumer}) {
      StoreSchedulerOptions options = Options(role);
      options.save_decode_cache = save_decode_cache;
      Glue glue(Hybrid(), 8, options);
      ASSERT_TRUE(glue.Allocated("a", {}, 0).ok());
      glue.New("a", 40, 0, 40);
      glue.Finish({{1, 2, 3}, {0, 22, 23}});
      glue.Running("a", 48, 40, 8);
      glue.core().BoundaryState("a", {state, 23, Tokens(48)});
      const StoreScheduler::Step step = glue.Finish({{1, 2, 3}, {0, 22, 23}});
      ASSERT_EQ(step.plan.saves.size(), save_decode_cache ? 1u : 0u);
      if (!save_decode_cache) continue;
      EXPECT_EQ(step.plan.saves[0].length, Tokens(48));
      EXPECT_THAT(step.plan.saves[0].boundary_puts, ElementsAre(BoundaryPut{state, 23, Tokens(48)}));
    }
  }
}

TEST(StoreSchedulerTest, UselessStatesAreDropped) {
  Glue glue(Hybrid(), 8);
  const kv::GroupIndex state(1);
  glue.core().BoundaryState("unknown", {state, 22, Tokens(32)});
  ASSERT_TRUE(glue.Allocated("a", {}, 0).ok());
  glue.New("a", 10, 0, 10);
  for (const BoundaryPut& put :
       {BoundaryPut{state, 22, Tokens(16)}, BoundaryPut{state, 0, Tokens(0)},
        BoundaryPut{kv::GroupIndex(0), 1, Tokens(0)}, BoundaryPut{state, 1, Tokens(7)},
        BoundaryPut{kv::GroupIndex(-1), 1, Tokens(0)}, BoundaryPut{kv::GroupIndex(9), 1, Tokens(0)}}) {
    glue.core().BoundaryState("a", put);
  }
  EXPECT_THAT(glue.core().SaveRequests(), IsEmpty());
  Glue consumer(Hybrid(), 8, Options(EngineRole::kConsumer));
  ASSERT_TRUE(consumer.Allocated("a", {}, 0).ok());
  consumer.New("a", 40, 0, 40);
  consumer.core().BoundaryState("a", {state, 22, Tokens(32)});
  EXPECT_THAT(consumer.core().SaveRequests(), IsEmpty());
}

// Vectors of store_connector spec §14.10: the tail's blocks go with the first save that covers the prompt.
TEST(StoreSchedulerTest, PartialTailIsPublishedWithTheSaveOfThePrompt) {
  Glue glue(Fine(), 16);
  const Tables tables = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {21, 22, 23}};
  ASSERT_TRUE(glue.Allocated("a", {}, 0).ok());
  glue.New("a", 45, 0, 45);
  glue.core().BoundaryState("a", {kv::GroupIndex(1), 23, Tokens(44)});
  const StoreScheduler::Step step = glue.Finish(tables);
  ASSERT_EQ(step.plan.saves.size(), 1u);
  EXPECT_EQ(step.plan.saves[0].length, Tokens(32));
  const kv::GroupIndex full(0);
  EXPECT_THAT(step.plan.saves[0].boundary_puts,
              ElementsAre(BoundaryPut{full, 9, Tokens(36)}, BoundaryPut{full, 10, Tokens(40)},
                          BoundaryPut{full, 11, Tokens(44)}, BoundaryPut{kv::GroupIndex(1), 23, Tokens(44)}));
  EXPECT_EQ(step.plan.saves[0].hashes, glue.HashesFrom(0, 11));
  glue.Running("a", 46, 45, 1);
  EXPECT_TRUE(glue.Finish(tables).plan.empty());
}

TEST(StoreSchedulerTest, TailThatIsLeftAtTheEndGoesOutWithTheNextPlan) {
  Glue glue(Fine(), 16);
  const Tables tables = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {21, 22, 23}};
  glue.New("a", 45, 0, 40);
  glue.Finish(tables);
  const kv::GroupIndex state(1);
  const auto tail =
      glue.core().FinishedPartialTail("a", glue.hashes(), Tokens(45), Tokens(44), tables, {{state, 23, Tokens(44)}});
  ASSERT_TRUE(tail.ok() && tail->has_value()) << tail.status();
  EXPECT_EQ((*tail)->blocks, (Blocks{9, 10, 11, 23}));
  glue.core().BeginStep({"a"}, {});
  const StepPlan plan = glue.Finish().plan;
  EXPECT_THAT(plan.finished, ElementsAre("a"));
  ASSERT_EQ(plan.saves.size(), 1u);
  EXPECT_EQ(plan.saves[0].job, (*tail)->job);
  EXPECT_EQ(plan.saves[0].first_hash, 8) << "32 tokens went before";
  EXPECT_EQ(plan.saves[0].hashes, glue.HashesFrom(8, 11));
}

TEST(StoreSchedulerTest, TailsThatAreNoneAreNotSaved) {
  Glue glue(Fine(), 16);
  const Tables tables = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {21, 22, 23}};
  const kv::GroupIndex state(1);
  const auto tail = [&](const std::string& request, std::vector<BoundaryPut> states) {
    return glue.core().FinishedPartialTail(request, glue.hashes(), Tokens(45), Tokens(44), tables, std::move(states));
  };
  EXPECT_EQ(tail("unknown", {{state, 23, Tokens(44)}})->has_value(), false);
  glue.New("a", 45, 0, 40);
  EXPECT_EQ(tail("a", {})->has_value(), false);
  EXPECT_EQ(tail("a", {{state, 23, Tokens(48)}})->has_value(), false) << "past the prefill";
  EXPECT_EQ(tail("a", {{state, 0, Tokens(44)}})->has_value(), false);
  EXPECT_EQ(tail("a", {{kv::GroupIndex(0), 9, Tokens(44)}})->has_value(), false);
  EXPECT_THAT(Message(tail("a", {{state, 23, Tokens(44)}, {state, 22, Tokens(40)}}).status()),
              HasSubstr("states at 44 and 40 tokens"));
  EXPECT_EQ(glue.core().pending_jobs(), 0u);
}

TEST(StoreSchedulerTest, SavesWithoutTheirBlocksOrHashesAreDropped) {
  Glue glue(Coarse(), 8);
  glue.New("a", 64, 0, 32);
  glue.core().CurrentBlocks("a", {{1}, {2}});
  EXPECT_TRUE(glue.core().FinishStep().plan.empty()) << "as many tables as groups";
  EXPECT_EQ(glue.counters().dropped_saves_total, 1);
  glue.Running("a", 64, 32, 32);
  const StepPlan plan = glue.Finish().plan;
  EXPECT_EQ(plan.saves.at(0).length, Tokens(64)) << "the next order covers what was dropped";
  EXPECT_EQ(plan.saves.at(0).first_hash, 0);
}

TEST(StoreSchedulerTest, ResetForgetsAnswersAndOffers) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  ASSERT_EQ(glue.MatchedAtLast("a", 65), 64);
  glue.core().Reset();
  EXPECT_FALSE(glue.AnyLeased());
  EXPECT_EQ(glue.Matched("a", 65), -1) << "looked up anew";
}

TEST(StoreSchedulerTest, IdsThatArePlansCannotCarryAreLeftAlone) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  const std::string id(kRequestIdBytesMax + 1, 'x');
  EXPECT_EQ(glue.Matched(id, 65), 0);
  EXPECT_TRUE(glue.Allocated(id, {}, 0).ok());
  glue.New(id, 64, 0, 64);
  EXPECT_TRUE(glue.Finish().plan.empty());
}

TEST(StoreSchedulerTest, OptionsAreChecked) {
  EXPECT_EQ(*ParseEngineRole("role", "kv_both"), EngineRole::kBoth);
  EXPECT_EQ(*ParseEngineRole("role", "kv_producer"), EngineRole::kProducer);
  EXPECT_EQ(*ParseEngineRole("role", "kv_consumer"), EngineRole::kConsumer);
  EXPECT_THAT(Message(ParseEngineRole("role", "both").status()), HasSubstr("role is \"both\"; use kv_producer"));
  PromptPool prompt(Coarse(), 1, {1}, false);
  StoreSchedulerOptions options = Options();
  options.world_size = 0;
  EXPECT_THAT(
      Message(StoreScheduler::Create(Coarse(), prompt.pool(), prompt.namespaces(), options, prompt.clock()).status()),
      HasSubstr("world_size is 0"));
}

TEST(StoreSchedulerTest, CountersHaveTheirNames) {
  Glue glue(Coarse(), 8);
  glue.Insert(kFour);
  glue.Load("a", 65, {{1, 2, 3, 4, 5}});
  glue.core().LoadDone("a");
  glue.New("a", 65, 64, 1);
  const auto named = glue.core().NamedCounters();
  EXPECT_THAT(named, ::testing::IsSupersetOf({Pair("lookups_total", 1), Pair("lookup_hits_total", 1),
                                              Pair("lookup_hit_tokens_total", 64), Pair("load_orders_total", 1),
                                              Pair("load_orders_done_total", 1), Pair("prompt_tokens_total", 65),
                                              Pair("external_tokens_total", 64), Pair("computed_tokens_total", 1)}));
}

}  // namespace
}  // namespace tenure::engine
