// Saves over pools on the host: which keys are asked and put, what a request remembers, and that every job is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tenure/base/status.h"
#include "tenure/engine/engine_rig_testing.h"
#include "tenure/engine/faulty_pool_testing.h"
#include "tenure/store/embedded_pool.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::engine {
namespace {

using kv::GroupIndex;
using kv::GroupKind;
using kv::GroupSpec;
using store::FakePool;
using store::PutAnswer;
using Call = store::FakePool::Call;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GroupSpec Full(int64_t block) { return {GroupKind::kFull, Tokens(block), Tokens(), Tokens(), false}; }
GroupSpec Window(int64_t block, int64_t window) {
  return {GroupKind::kWindow, Tokens(block), Tokens(window), Tokens(), false};
}
GroupSpec State(int64_t block) { return {GroupKind::kState, Tokens(block), Tokens(), Tokens(), false}; }

kv::CacheConfig::Options Config(int64_t hash_block, int64_t scheduler_block, std::vector<GroupSpec> groups) {
  return {.hash_block_size = Tokens(hash_block),
          .scheduler_block_size = Tokens(scheduler_block),
          .fine = false,
          .use_eagle = false,
          .groups = std::move(groups)};
}

std::vector<BlockId> Blocks(BlockId first, BlockId end) {
  std::vector<BlockId> blocks;
  for (BlockId block = first; block < end; ++block) blocks.push_back(block);
  return blocks;
}

using GroupHashes = std::vector<std::pair<int, int64_t>>;

class SaveWorkerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHashesMax = 64;

  void Make(EngineRigOptions options, bool closed = false) {
    fake_ = std::make_unique<FakePool>(clock_, closed);
    pool_ = std::make_unique<FaultyPool>(*fake_);
    groups_ = static_cast<int>(options.config.groups.size());
    rig_ = std::make_unique<EngineRig>(std::move(options), *pool_, clock_);
    for (BlockId block = 1; block < 64; ++block) rig_->Fill(block, 7);
  }
  // An order of request "r" that extends its earlier ones to `length` tokens.
  SaveOrder Order(int64_t length, int64_t prefill_end, const std::string& request = "r") {
    const int64_t hashes = length / rig_->config().hash_block_size().value();
    SaveOrder order{.job = ++last_job_,
                    .request = request,
                    .length = Tokens(length),
                    .prefill_end = Tokens(prefill_end),
                    .first_hash = sent_[request],
                    .hashes = TestHashes(PromptOf(request), sent_[request], hashes),
                    .blocks = {},
                    .boundary_puts = {},
                    .tokens = {}};
    sent_[request] = std::max(sent_[request], hashes);
    for (const GroupSpec& spec : rig_->config().groups()) {
      order.blocks.push_back(Blocks(1, static_cast<BlockId>(1 + length / spec.block_size.value())));
    }
    return order;
  }
  static uint64_t PromptOf(const std::string& request) {
    return request == "r" ? 1 : std::hash<std::string>{}(request);
  }
  WorkerReport Save(SaveOrder order) {
    StepPlan plan;
    plan.saves.push_back(std::move(order));
    return Run(std::move(plan));
  }
  WorkerReport Run(StepPlan plan) {
    rig_->worker().StartSaves(std::move(plan), 0);
    return rig_->Settle();
  }
  // What call number `at` of its kind asked of prompt 1.
  GroupHashes KeysOf(Call call, size_t at, int shard = 0) const {
    GroupHashes pairs;
    size_t seen = 0;
    for (const FakePool::Record& record : fake_->records()) {
      if (record.call != call || seen++ != at) continue;
      for (const store::ObjectKey& key : record.keys) {
        for (int group = 0; group < groups_; ++group) {
          for (int64_t k = 0; k < kHashesMax; ++k) {
            if (rig_->Key(group, TestHash(1, k), shard) == key) pairs.emplace_back(group, k);
          }
        }
      }
    }
    return pairs;
  }
  bool Has(int group, int64_t hash) const { return fake_->Contains(rig_->Key(group, TestHash(1, hash))); }

  ManualClock clock_;
  std::unique_ptr<FakePool> fake_;
  std::unique_ptr<FaultyPool> pool_;
  std::unique_ptr<EngineRig> rig_;
  int groups_ = 0;
  uint64_t last_job_ = 0;
  std::map<std::string, int64_t> sent_;
};

// store_connector spec §14.10, first vector.
TEST_F(SaveWorkerTest, SavesWhatTheStoreMaskKeepsAndGoesOnFromThere) {
  Make({.config = Config(8, 32, {Full(32), Window(8, 8)})});
  WorkerReport report = Save(Order(96, 100));
  EXPECT_THAT(report.saved, ElementsAre(1));
  const GroupHashes first = {{0, 3}, {0, 7}, {0, 11}, {1, 11}};
  EXPECT_EQ(KeysOf(Call::kProbe, 0), first);
  EXPECT_EQ(KeysOf(Call::kPut, 0), first);
  report = Save(Order(128, 130));
  EXPECT_THAT(report.saved, ElementsAre(2));
  const GroupHashes second = {{0, 15}, {1, 15}};
  EXPECT_EQ(KeysOf(Call::kProbe, 1), second);
  EXPECT_EQ(KeysOf(Call::kPut, 1), second);
  EXPECT_EQ(report.counters.saved_keys_total, 6);
  EXPECT_EQ(report.counters.saved_bytes_total, 6 * 128);
  EXPECT_EQ(fake_->Calls(Call::kLease), 0);
}

TEST_F(SaveWorkerTest, WhatIsThereIsNotPutAgain) {
  Make({.config = Config(16, 16, {Full(16)})});
  Save(Order(64, 100));
  fake_->Lose(rig_->Key(0, TestHash(1, 2)));
  fake_->ClearRecords();
  SaveOrder order = Order(64, 100, "again");
  order.hashes = TestHashes(1, 0, 4);
  const WorkerReport report = Save(order);
  EXPECT_EQ(KeysOf(Call::kProbe, 0), (GroupHashes{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{0, 2}}));
  EXPECT_EQ(report.counters.present_keys_total, 3);
}

TEST_F(SaveWorkerTest, TheBytesAreThoseOfTheBlocks) {
  Make({.config = Config(16, 16, {Full(16), Full(16)}), .shards = 2});
  SaveOrder order = Order(32, 33);
  order.blocks = {{5, 9}, {6, 2}};
  Save(order);
  StepPlan load;
  load.loads.push_back({.request = "l",
                        .local = Tokens(0),
                        .length = Tokens(32),
                        .chunks = {{GroupIndex(0), 21, TestHash(1, 0)},
                                   {GroupIndex(0), 22, TestHash(1, 1)},
                                   {GroupIndex(1), 23, TestHash(1, 1)}}});
  rig_->worker().StartLoads(std::move(load), 0);
  EXPECT_THAT(rig_->Settle().loaded, ElementsAre("l"));
  EXPECT_TRUE(rig_->Holds(0, 21, 5, 7));
  EXPECT_TRUE(rig_->Holds(0, 22, 9, 7));
  EXPECT_TRUE(rig_->Holds(1, 23, 2, 7));
  EXPECT_TRUE(rig_->Holds(1, 22, 22, 7));  // The other group's part of a loaded block is as it was.
}

// §14.10: a null block, a refusal for want of room, and what it does to later jobs.
TEST_F(SaveWorkerTest, ARequestThatMetAFullPoolWaitsUntilAnotherPutFits) {
  Make({.config = Config(16, 16, {Full(16)})});
  bool full = true;
  pool_->set_on_put([&](const store::PutObject& object) -> std::optional<PutAnswer> {
    if (full && object.key == rig_->Key(0, TestHash(1, 2))) return PutAnswer::kRefusedFull;
    return std::nullopt;
  });
  SaveOrder order = Order(64, 65);
  order.blocks[0][1] = kNullBlock;
  WorkerReport report = Save(order);
  EXPECT_THAT(report.saved, ElementsAre(1));
  EXPECT_EQ(KeysOf(Call::kProbe, 0), (GroupHashes{{0, 0}, {0, 2}, {0, 3}}));
  EXPECT_TRUE(Has(0, 0) && Has(0, 3) && !Has(0, 2));
  EXPECT_EQ(report.counters.failed_save_jobs_total, 1);
  EXPECT_EQ(report.counters.refused_keys_total, 1);
  fake_->ClearRecords();
  full = false;
  report = Save(Order(80, 81));
  EXPECT_THAT(report.saved, ElementsAre(2));
  EXPECT_THAT(fake_->records(), IsEmpty());
  EXPECT_EQ(report.counters.skipped_save_jobs_total, 1);
  EXPECT_THAT(Save(Order(16, 17, "other")).saved, ElementsAre(3));
  fake_->ClearRecords();
  report = Save(Order(96, 97));
  EXPECT_THAT(report.saved, ElementsAre(4));
  EXPECT_THAT(KeysOf(Call::kProbe, 0), SizeIs(6));  // From the start: no offset was kept.
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{0, 1}, {0, 2}, {0, 4}, {0, 5}}));
}

// §14.10: latent attention on four ranks, states of one's own; boundary puts come first.
TEST_F(SaveWorkerTest, RanksWithTheSameBytesShareThePuts) {
  Make({.config = Config(16, 16, {Full(16), State(16)}), .stripes = {4, 1}, .tp_rank = 1});
  SaveOrder order = Order(128, 129);
  order.boundary_puts = {{GroupIndex(1), 20, Tokens(64)}, {GroupIndex(1), 21, Tokens(128)}};
  EXPECT_THAT(Save(order).saved, ElementsAre(1));
  EXPECT_EQ(KeysOf(Call::kProbe, 0), (GroupHashes{{1, 3}, {1, 7}}));
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{1, 3}, {1, 7}}));
  EXPECT_EQ(KeysOf(Call::kProbe, 1), (GroupHashes{{0, 1}, {0, 5}}));
  EXPECT_EQ(KeysOf(Call::kPut, 1), (GroupHashes{{0, 1}, {0, 5}}));
}

TEST_F(SaveWorkerTest, BoundaryPutsAreStripedByTheChunkTheyEndIn) {
  const kv::CacheConfig::Options config = Config(16, 32, {Full(32), State(32)});
  std::set<int64_t> put;
  for (int32_t rank = 0; rank < 2; ++rank) {
    Make({.config = config, .stripes = {1, 2}, .tp_rank = rank});
    SaveOrder order = Order(128, 129);
    order.length = Tokens(0);
    for (const int64_t tokens : {16, 32, 48, 64, 128}) {
      order.boundary_puts.push_back({GroupIndex(1), 20, Tokens(tokens)});
    }
    sent_.clear();
    Save(order);
    const GroupHashes mine = rank == 1 ? GroupHashes{{1, 0}, {1, 1}} : GroupHashes{{1, 2}, {1, 3}, {1, 7}};
    EXPECT_EQ(KeysOf(Call::kPut, 0), mine) << rank;
  }
}

TEST_F(SaveWorkerTest, AFailedBoundaryPutKeepsTheChunksForTheNextOrder) {
  Make({.config = Config(16, 16, {Full(16), State(16)})});
  bool down = true;
  pool_->set_on_put([&](const store::PutObject& object) -> std::optional<PutAnswer> {
    if (down && object.key == rig_->Key(1, TestHash(1, 3))) return PutAnswer::kNotStored;
    return std::nullopt;
  });
  SaveOrder order = Order(64, 65);
  order.boundary_puts = {{GroupIndex(1), 20, Tokens(64)}};
  EXPECT_THAT(Save(order).saved, ElementsAre(1));
  EXPECT_EQ(fake_->Keys().size(), 0u);
  down = false;
  EXPECT_THAT(Save(Order(80, 81)).saved, ElementsAre(2));
  EXPECT_EQ(fake_->Keys().size(), 5u);
}

TEST_F(SaveWorkerTest, NullBlocksZeroTokensAndUnknownHashesAreNoBoundaryPuts) {
  Make({.config = Config(16, 16, {Full(16), State(16)})});
  SaveOrder order = Order(32, 33);
  order.length = Tokens(0);
  order.boundary_puts = {
      {GroupIndex(1), kNullBlock, Tokens(16)}, {GroupIndex(1), 20, Tokens(0)}, {GroupIndex(1), 20, Tokens(48)}};
  const WorkerReport report = Save(order);
  EXPECT_THAT(report.saved, ElementsAre(1));
  EXPECT_EQ(report.counters.failed_save_jobs_total, 0);
  EXPECT_THAT(fake_->records(), IsEmpty());
}

TEST_F(SaveWorkerTest, OnlyAnOrderWhoseChunksWereAllKeptAdvancesTheRequest) {
  Make({.config = Config(16, 16, {Full(16)})});
  for (const PutAnswer answer : {PutAnswer::kBusy, PutAnswer::kNotStored, PutAnswer::kSizeDiffers,
                                 PutAnswer::kRefusedWaiting, PutAnswer::kRefusedSize}) {
    Make({.config = Config(16, 16, {Full(16)})});
    last_job_ = 0;
    sent_.clear();
    pool_->set_on_put([&](const store::PutObject& object) -> std::optional<PutAnswer> {
      if (last_job_ == 1 && object.key == rig_->Key(0, TestHash(1, 1))) return answer;
      return std::nullopt;
    });
    Save(Order(48, 49));
    Save(Order(64, 65));
    EXPECT_EQ(KeysOf(Call::kProbe, 1), (GroupHashes{{0, 0}, {0, 1}, {0, 2}, {0, 3}})) << ToString(answer);
    Save(Order(80, 81));
    EXPECT_EQ(KeysOf(Call::kProbe, 2), (GroupHashes{{0, 4}})) << ToString(answer);
  }
}

TEST_F(SaveWorkerTest, APoolThatDoesNotAnswerFailsTheJobAndTheNextOneRetries) {
  for (const FaultyPool::Call broken : {FaultyPool::Call::kProbe, FaultyPool::Call::kPut}) {
    Make({.config = Config(16, 16, {Full(16)})});
    sent_.clear();
    bool down = true;
    pool_->set_before_call(
        [&](FaultyPool::Call call) { return down && call == broken ? Unavailable("gone") : absl::OkStatus(); });
    WorkerReport report = Save(Order(48, 49));
    EXPECT_THAT(report.saved, SizeIs(1));
    EXPECT_EQ(report.counters.failed_save_jobs_total, 1);
    EXPECT_EQ(report.operations.back().status, OperationStatus::kError);
    EXPECT_EQ(report.operations.back().failed_keys, 3);
    down = false;
    Save(Order(64, 65));
    EXPECT_EQ(fake_->Keys().size(), 4u);
  }
}

TEST_F(SaveWorkerTest, APreemptedRequestBeginsAnew) {
  Make({.config = Config(16, 16, {Full(16)})});
  Save(Order(48, 49));
  sent_.clear();
  StepPlan plan;
  plan.preempted = {"r", "nobody"};
  plan.saves.push_back(Order(64, 65));
  EXPECT_THAT(Run(std::move(plan)).saved, ElementsAre(2));
  EXPECT_EQ(KeysOf(Call::kProbe, 1), (GroupHashes{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
}

TEST_F(SaveWorkerTest, JobsLeftOverFromBeforeAPreemptionAreSkippedAndReported) {
  Make({.config = Config(16, 16, {Full(16)})});
  Mutex mutex;
  CondVar changed;
  bool entered = false;
  bool go = false;
  pool_->set_before_call([&](FaultyPool::Call) {
    MutexLock lock(mutex);
    entered = true;
    changed.SignalAll();
    while (!go) changed.Wait(mutex);
    return absl::OkStatus();
  });
  StepPlan first;
  first.saves = {Order(16, 17, "slow"), Order(48, 49)};
  rig_->worker().StartSaves(std::move(first), 0);
  {
    MutexLock lock(mutex);
    while (!entered) changed.Wait(mutex);
  }
  sent_.clear();
  StepPlan second;
  second.preempted = {"r"};
  second.saves = {Order(32, 33)};
  rig_->worker().StartSaves(std::move(second), 0);
  {
    MutexLock lock(mutex);
    go = true;
    changed.SignalAll();
  }
  const WorkerReport report = rig_->Settle();
  EXPECT_THAT(report.saved, ElementsAre(1, 2, 3));
  EXPECT_EQ(report.counters.skipped_save_jobs_total, 1);
  EXPECT_EQ(KeysOf(Call::kProbe, 1), (GroupHashes{{0, 0}, {0, 1}}));
}

TEST_F(SaveWorkerTest, AFinishedRequestsJobsAreStillDoneAndItsNameStartsAnew) {
  Make({.config = Config(16, 16, {Full(16)})});
  StepPlan plan;
  plan.saves = {Order(32, 33), Order(48, 49)};
  plan.finished = {"r"};
  EXPECT_THAT(Run(std::move(plan)).saved, ElementsAre(1, 2));
  EXPECT_EQ(fake_->Keys().size(), 3u);
  sent_.clear();
  fake_->ClearRecords();
  Save(Order(16, 17));
  EXPECT_EQ(KeysOf(Call::kProbe, 0), (GroupHashes{{0, 0}}));
}

TEST_F(SaveWorkerTest, WrongOrdersAreReportedAndPutNothing) {
  Make({.config = Config(16, 16, {Full(16), State(16)})});
  std::vector<SaveOrder> wrong;
  const auto add = [&](auto change) {
    sent_.clear();
    SaveOrder order = Order(32, 33, "wrong" + std::to_string(wrong.size()));
    order.boundary_puts = {{GroupIndex(1), 20, Tokens(32)}};
    change(order);
    wrong.push_back(std::move(order));
  };
  add([](SaveOrder& order) { order.first_hash = 1; });
  add([](SaveOrder& order) { order.first_hash = -1; });
  add([](SaveOrder& order) { order.hashes[1] = kv::BlockHash(); });
  add([](SaveOrder& order) { order.boundary_puts[0].group = GroupIndex(2); });
  add([](SaveOrder& order) { order.boundary_puts[0].group = GroupIndex(-1); });
  add([](SaveOrder& order) { order.boundary_puts[0].tokens = Tokens(17); });
  add([](SaveOrder& order) { order.boundary_puts[0].tokens = Tokens(-16); });
  add([](SaveOrder& order) { order.boundary_puts[0].block = 64; });
  add([](SaveOrder& order) { order.boundary_puts[0].block = -1; });
  for (SaveOrder& order : wrong) {
    const uint64_t job = order.job;
    const WorkerReport report = Save(std::move(order));
    EXPECT_THAT(report.saved, ElementsAre(job));
    EXPECT_THAT(fake_->Keys(), IsEmpty()) << "job " << job;
  }
  // Beyond what the hashes or the block table cover there is nothing to save.
  SaveOrder order = Order(32, 33, "long");
  order.length = Tokens(INT64_MAX);
  order.blocks = {{1}};
  EXPECT_THAT(Save(order).saved, SizeIs(1));
  EXPECT_EQ(fake_->Keys().size(), 1u);
  order = Order(32, 33, "negative");
  order.length = Tokens(-1);
  order.prefill_end = Tokens(-5);
  const WorkerReport report = Save(order);
  EXPECT_THAT(report.saved, SizeIs(1));
  EXPECT_EQ(report.counters.failed_save_jobs_total, static_cast<int64_t>(wrong.size()));
}

TEST_F(SaveWorkerTest, AWorkerThatMayNotPutReportsEveryJob) {
  Make({.config = Config(16, 16, {Full(16)}), .can_put = false});
  EXPECT_THAT(Save(Order(48, 49)).saved, ElementsAre(1));
  EXPECT_THAT(fake_->records(), IsEmpty());
}

TEST_F(SaveWorkerTest, StopReportsWhatNobodyBegan) {
  Make({.config = Config(16, 16, {Full(16)})});
  rig_->worker().Stop();
  StepPlan plan;
  plan.saves = {Order(48, 49)};
  rig_->worker().StartSaves(std::move(plan), 0);
  EXPECT_THAT(rig_->worker().TakeReport().saved, ElementsAre(1));
  EXPECT_THAT(fake_->records(), IsEmpty());
}

// Closed pools: each object names what it hangs on, and comes after it.
TEST_F(SaveWorkerTest, OnAClosedPoolAllIsThereInTheEndAndNothingWaits) {
  Make({.config = Config(16, 64, {State(32), Window(16, 16), Full(64)})}, true);
  SaveOrder order = Order(128, 129);
  order.boundary_puts = {{GroupIndex(0), 20, Tokens(32)}, {GroupIndex(0), 21, Tokens(128)}};
  const WorkerReport report = Save(order);
  EXPECT_EQ(report.counters.failed_save_jobs_total, 0);
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{2, 3}, {2, 7}, {1, 7}, {0, 1}, {0, 7}}));
  EXPECT_EQ(fake_->Keys().size(), 5u);
  fake_->Lose(rig_->Key(2, TestHash(1, 7)));  // Takes along what hangs on it.
  EXPECT_TRUE(Has(2, 3) && Has(0, 1) && !Has(0, 7) && !Has(1, 7));
}

// A state at a boundary that no whole chunk covers hangs on the partial chunk put there, else on the last whole one.
TEST_F(SaveWorkerTest, APartialTailHangsTogether) {
  kv::CacheConfig::Options config = Config(4, 16, {Full(16), State(16)});
  config.fine = true;
  Make({.config = config}, true);
  SaveOrder order = Order(48, 45);
  order.length = Tokens(32);
  order.hashes.pop_back();
  order.boundary_puts = {
      {GroupIndex(1), 20, Tokens(44)}, {GroupIndex(0), 3, Tokens(44)}, {GroupIndex(1), 21, Tokens(36)}};
  EXPECT_EQ(Save(order).counters.failed_save_jobs_total, 0);
  EXPECT_TRUE(Has(0, 3) && Has(0, 7) && Has(0, 10) && Has(1, 10) && Has(1, 8));
  fake_->Lose(rig_->Key(0, TestHash(1, 10)));
  EXPECT_FALSE(Has(1, 10));
  EXPECT_TRUE(Has(1, 8));
  fake_->Lose(rig_->Key(0, TestHash(1, 7)));
  EXPECT_FALSE(Has(1, 8));
  EXPECT_TRUE(Has(0, 3));
}

TEST_F(SaveWorkerTest, OnAClosedPoolAChainEndsAtItsFirstRefusalAndWhatHangsOnItIsSkipped) {
  Make({.config = Config(16, 16, {Full(16), Window(16, 32), Full(16)}),
        .retention = Tokens(16),
        .batch_bytes = Bytes(2 * 128)},
       true);
  std::vector<store::ObjectKey> put;
  pool_->set_on_put([&](const store::PutObject& object) -> std::optional<PutAnswer> {
    put.push_back(object.key);
    if (object.key == rig_->Key(0, TestHash(1, 1))) return PutAnswer::kRefusedFull;
    return std::nullopt;
  });
  const WorkerReport report = Save(Order(80, 81));
  EXPECT_EQ(report.counters.failed_save_jobs_total, 1);
  // Chunks 2 to 4 of the first group and the windows that hang on 1 and later are not tried; the other group goes on.
  std::vector<store::ObjectKey> expected = {rig_->Key(0, TestHash(1, 0)), rig_->Key(0, TestHash(1, 1))};
  for (int64_t k = 0; k < 5; ++k) expected.push_back(rig_->Key(2, TestHash(1, k)));
  expected.push_back(rig_->Key(1, TestHash(1, 0)));
  EXPECT_EQ(put, expected);
}

TEST_F(SaveWorkerTest, OnAClosedPoolAMissingBlockEndsTheChainUnlessItsChunkIsThere) {
  Make({.config = Config(16, 16, {Full(16)})}, true);
  SaveOrder order = Order(64, 65);
  order.blocks[0][1] = kNullBlock;
  Save(order);
  EXPECT_TRUE(Has(0, 0) && !Has(0, 2) && !Has(0, 3));
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{0, 0}}));
  fake_->Insert(rig_->Key(0, TestHash(1, 1)), rig_->Key(0, TestHash(1, 0)));
  SaveOrder again = Order(64, 65);
  again.blocks[0][1] = kNullBlock;
  Save(again);
  EXPECT_TRUE(Has(0, 2) && Has(0, 3));
}

TEST_F(SaveWorkerTest, AChainThatHasLeftThePoolIsSavedFromItsStart) {
  Make({.config = Config(16, 16, {Full(16)})}, true);
  Save(Order(48, 49));
  fake_->Lose(rig_->Key(0, TestHash(1, 0)));
  EXPECT_THAT(fake_->Keys(), IsEmpty());
  EXPECT_EQ(Save(Order(64, 65)).counters.failed_save_jobs_total, 1);
  Save(Order(80, 81));
  EXPECT_EQ(fake_->Keys().size(), 5u);
}

// Each rank puts every other chunk of one chain, so a child may come before its parent.
TEST_F(SaveWorkerTest, OnAClosedPoolRanksOfAStripeBuildOneChain) {
  Make({.config = Config(16, 16, {Full(16), State(16)}), .stripes = {2, 1}, .tp_rank = 1}, true);
  EngineRig other({.config = Config(16, 16, {Full(16), State(16)}), .stripes = {2, 1}, .tp_rank = 0}, *pool_, clock_);
  SaveOrder order = Order(96, 97);
  WorkerReport report = Save(order);
  EXPECT_EQ(KeysOf(Call::kPut, 0), (GroupHashes{{0, 1}, {0, 3}, {0, 5}}));
  EXPECT_THAT(fake_->Keys(), IsEmpty());
  StepPlan plan;
  plan.saves = {order};
  other.worker().StartSaves(std::move(plan), 0);
  EXPECT_EQ(other.Settle().counters.failed_save_jobs_total, 0);
  EXPECT_EQ(fake_->Keys().size(), 6u);
  // Chunk 7 waits for chunk 6, which is no failure, but nothing to go on from either.
  EXPECT_EQ(Save(Order(128, 129)).counters.failed_save_jobs_total, 0);
  EXPECT_EQ(fake_->Keys().size(), 6u);
  fake_->ClearRecords();
  Save(Order(160, 161));
  EXPECT_EQ(KeysOf(Call::kProbe, 0), (GroupHashes{{0, 1}, {0, 3}, {0, 5}, {0, 7}, {0, 9}}));
}

TEST_F(SaveWorkerTest, EventsTellEachNewChunkOnceWithItsParentAndTokens) {
  Make({.config = Config(8, 16, {Full(16), Window(8, 8)}), .shards = 2, .events = true});
  fake_->Insert(rig_->Key(0, TestHash(1, 1), 0));  // One shard of chunk 0 is there.
  SaveOrder order = Order(32, 33);
  order.tokens.start = Tokens(0);
  for (int32_t id = 0; id < 32; ++id) order.tokens.ids.push_back(100 + id);
  WorkerReport report = Save(order);
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  for (int32_t id = 0; id < 16; ++id) {
    first.push_back(100 + id);
    second.push_back(116 + id);
  }
  EXPECT_THAT(report.events, ElementsAre(StoredEvent{GroupIndex(0), TestHash(1, 1), std::nullopt, Tokens(16), first},
                                         StoredEvent{GroupIndex(0), TestHash(1, 3), TestHash(1, 1), Tokens(16), second},
                                         StoredEvent{GroupIndex(1), TestHash(1, 3), TestHash(1, 2), Tokens(8),
                                                     std::vector<int32_t>(second.begin() + 8, second.end())}));
  EXPECT_THAT(Save(Order(32, 33)).events, IsEmpty());
}

TEST_F(SaveWorkerTest, AFailedSaveKeepsItsTokensForTheNextContiguousOrder) {
  Make({.config = Config(16, 16, {Full(16)}), .events = true});
  bool down = true;
  pool_->set_on_put([&](const store::PutObject& object) -> std::optional<PutAnswer> {
    if (down && object.key == rig_->Key(0, TestHash(1, 1))) return PutAnswer::kNotStored;
    return std::nullopt;
  });
  SaveOrder order = Order(32, 33);
  order.tokens = {Tokens(0), std::vector<int32_t>(32, 5)};
  EXPECT_THAT(Save(order).events, SizeIs(1));  // Chunk 0.
  down = false;
  order = Order(48, 49);
  order.tokens = {Tokens(32), std::vector<int32_t>(16, 6)};
  WorkerReport report = Save(order);
  ASSERT_THAT(report.events, SizeIs(2));
  EXPECT_EQ(report.events[0].token_ids, std::vector<int32_t>(16, 5));
  EXPECT_EQ(report.events[1].token_ids, std::vector<int32_t>(16, 6));
  // A window with a gap before it tells nothing of what came before.
  down = true;
  fake_->Lose(rig_->Key(0, TestHash(1, 1)));
  order = Order(64, 65, "gap");
  order.hashes = TestHashes(1, 0, 4);
  order.tokens = {Tokens(0), std::vector<int32_t>(32, 7)};
  Save(order);
  down = false;
  order = Order(80, 81, "gap");
  order.hashes = TestHashes(1, 4, 5);
  order.tokens = {Tokens(64), std::vector<int32_t>(16, 8)};
  report = Save(order);
  ASSERT_THAT(report.events, SizeIs(2));
  EXPECT_THAT(report.events[0].token_ids, IsEmpty());
  EXPECT_EQ(report.events[1].token_ids, std::vector<int32_t>(16, 8));
}

TEST_F(SaveWorkerTest, EventsOfARaisingPutAreNotTold) {
  Make({.config = Config(16, 16, {Full(16)}), .events = true});
  pool_->set_before_call(
      [](FaultyPool::Call call) { return call == FaultyPool::Call::kPut ? Unavailable("gone") : absl::OkStatus(); });
  EXPECT_THAT(Save(Order(32, 33)).events, IsEmpty());
}

// "A save must not eat itself": a prompt longer than the pool keeps a prefix of all the room there is.
TEST_F(SaveWorkerTest, APromptLongerThanThePoolKeepsAPrefix) {
  store::EmbeddedPoolOptions options;
  options.capacity = Bytes(1 << 20);
  options.slab_bytes = Bytes(64 << 10);
  auto pool = store::EmbeddedPool::Create(options, clock_).value();
  constexpr int64_t kChunks = 400;
  EngineRig rig({.config = Config(16, 16, {Full(16)}),
                 .num_blocks = kChunks + 1,
                 .piece_bytes = 2048,
                 .batch_bytes = Bytes(256 << 10)},
                *pool, clock_);
  SaveOrder order{.job = 1,
                  .request = "r",
                  .length = Tokens(kChunks * 16),
                  .prefill_end = Tokens(kChunks * 16 + 1),
                  .first_hash = 0,
                  .hashes = TestHashes(1, 0, kChunks),
                  .blocks = {Blocks(1, kChunks + 1)},
                  .boundary_puts = {},
                  .tokens = {}};
  StepPlan plan;
  plan.saves = {order};
  rig.worker().StartSaves(std::move(plan), 0);
  EXPECT_THAT(rig.Settle().saved, ElementsAre(1));
  int64_t prefix = 0;
  std::vector<store::ObjectKey> keys;
  for (int64_t k = 0; k < kChunks; ++k) keys.push_back(rig.Key(0, TestHash(1, k)));
  std::vector<store::KeyAnswer> answers(keys.size());
  ASSERT_TRUE(pool->Probe(keys, answers).ok());
  while (prefix < kChunks && answers[static_cast<size_t>(prefix)] == store::KeyAnswer::kPresent) ++prefix;
  EXPECT_EQ(prefix, pool->Stats().objects);
  EXPECT_GE(prefix, (1 << 20) / 4096 * 9 / 10);
}

}  // namespace
}  // namespace tenure::engine
