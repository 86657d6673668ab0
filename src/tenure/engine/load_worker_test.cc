// Loads over pools on the host: what is read, in which order, and what is reported when something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/engine/engine_rig_testing.h"
#include "tenure/engine/faulty_pool_testing.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::engine {
namespace {

using kv::GroupIndex;
using kv::GroupKind;
using kv::GroupSpec;
using store::FakePool;
using store::KeyAnswer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

GroupSpec Full(int64_t block) { return {GroupKind::kFull, Tokens(block), Tokens(), Tokens(), false}; }
GroupSpec State(int64_t block) { return {GroupKind::kState, Tokens(block), Tokens(), Tokens(), false}; }

// store_connector spec §14.10: full 16 and state 16, hash unit 4, a hit of 36 tokens whose tails end at 48 and 36.
kv::CacheConfig::Options FineConfig() {
  return {.hash_block_size = Tokens(4),
          .scheduler_block_size = Tokens(16),
          .fine = true,
          .use_eagle = false,
          .groups = {Full(16), State(16)}};
}

LoadChunk Chunk(int group, BlockId block, int64_t hash) { return {GroupIndex(group), block, TestHash(1, hash)}; }

LoadOrder FineHit(const std::string& request = "r") {
  return {.request = request,
          .local = Tokens(0),
          .length = Tokens(36),
          .chunks = {Chunk(0, 1, 3), Chunk(0, 2, 7), Chunk(0, 3, 11), Chunk(1, 4, 8)}};
}

StepPlan LoadPlan(LoadOrder order) {
  StepPlan plan;
  plan.loads.push_back(std::move(order));
  return plan;
}

class LoadWorkerTest : public ::testing::Test {
 protected:
  LoadWorkerTest() : fake_(clock_, false), pool_(fake_) {}

  void Make(EngineRigOptions options = {.config = FineConfig()}) {
    rig_ = std::make_unique<EngineRig>(std::move(options), pool_, clock_);
  }
  // Puts what chunks of `order` name, filled as block `100 + block` of seed 7.
  void Store(const LoadOrder& order) {
    EngineRig source({.config = FineConfig(), .num_blocks = 256}, fake_, clock_);
    for (const LoadChunk& chunk : order.chunks) {
      source.Fill(100 + chunk.block, 7);
      StepPlan plan;
      plan.saves.push_back({.job = 1,
                            .request = "writer" + std::to_string(chunk.block),
                            .length = Tokens(0),
                            .prefill_end = Tokens(0),
                            .first_hash = 0,
                            .hashes = {chunk.hash},
                            .blocks = {},
                            .boundary_puts = {{chunk.group, 100 + chunk.block, Tokens(4)}},
                            .tokens = {}});
      source.worker().StartSaves(std::move(plan), 0);
    }
    EXPECT_EQ(source.Settle().counters.saved_keys_total, static_cast<int64_t>(order.chunks.size()));
    fake_.ClearRecords();
  }
  WorkerReport Load(LoadOrder order) {
    rig_->worker().StartLoads(LoadPlan(std::move(order)), 0);
    return rig_->Settle();
  }
  // (group, hash) of the keys asked in get number `call`.
  std::vector<std::pair<int, int64_t>> KeysOfGet(size_t call) const {
    std::vector<std::pair<int, int64_t>> pairs;
    size_t seen = 0;
    for (const FakePool::Record& record : fake_.records()) {
      if (record.call != FakePool::Call::kGet || seen++ != call) continue;
      for (const store::ObjectKey& key : record.keys) {
        for (int group = 0; group < 2; ++group) {
          for (int64_t k = 0; k < 16; ++k) {
            if (rig_->Key(group, TestHash(1, k)) == key) pairs.emplace_back(group, k);
          }
        }
      }
    }
    return pairs;
  }
  bool Right(const LoadOrder& order) const {
    for (const LoadChunk& chunk : order.chunks) {
      if (!rig_->Holds(chunk.group.value(), chunk.block, 100 + chunk.block, 7)) return false;
    }
    return true;
  }

  ManualClock clock_;
  FakePool fake_;
  FaultyPool pool_;
  std::unique_ptr<EngineRig> rig_;
};

TEST_F(LoadWorkerTest, AFineHitReadsItsChunksAndTailsIntoTheirBlocks) {
  Make();
  Store(FineHit());
  const WorkerReport report = Load(FineHit());
  EXPECT_THAT(report.loaded, ElementsAre("r"));
  EXPECT_THAT(report.failed, IsEmpty());
  EXPECT_THAT(KeysOfGet(0), ElementsAre(std::pair(0, 3), std::pair(0, 7), std::pair(0, 11), std::pair(1, 8)));
  EXPECT_TRUE(Right(FineHit()));
  EXPECT_EQ(report.counters.loaded_keys_total, 4);
  EXPECT_EQ(report.counters.loaded_bytes_total, 4 * 2 * 64);
  ASSERT_THAT(report.operations, SizeIs(1));
  EXPECT_EQ(report.operations[0].keys, 4);
  EXPECT_EQ(report.operations[0].bytes, 4 * 2 * 64);
  EXPECT_EQ(report.operations[0].status, OperationStatus::kOk);
}

TEST_F(LoadWorkerTest, RanksBeginAtDifferentKeys) {
  Make({.config = FineConfig(), .tp_rank = 5});
  Store(FineHit());
  EXPECT_THAT(Load(FineHit()).loaded, ElementsAre("r"));
  EXPECT_THAT(KeysOfGet(0), ElementsAre(std::pair(0, 7), std::pair(0, 11), std::pair(1, 8), std::pair(0, 3)));
  EXPECT_TRUE(Right(FineHit()));
}

TEST_F(LoadWorkerTest, AnEmptyLoadIsDoneAtOnce) {
  Make();
  LoadOrder order = FineHit();
  order.chunks.clear();
  const WorkerReport report = Load(order);
  EXPECT_THAT(report.loaded, ElementsAre("r"));
  EXPECT_THAT(fake_.records(), IsEmpty());
}

TEST_F(LoadWorkerTest, AMissFailsTheRequestAndNamesItsBlock) {
  Make();
  Store(FineHit());
  fake_.Lose(rig_->Key(0, TestHash(1, 7)));
  const WorkerReport report = Load(FineHit());
  EXPECT_THAT(report.loaded, IsEmpty());
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(2));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kAbsent)], 1);
  EXPECT_EQ(report.operations[0].failed_keys, 1);
  EXPECT_EQ(report.operations[0].status, OperationStatus::kPartialFailure);
  EXPECT_EQ(fake_.Calls(FakePool::Call::kRemove), 0);
}

// The blocks of the batches that come after a failure have no bytes either.
TEST_F(LoadWorkerTest, TheFirstFailedBatchEndsTheLoad) {
  Make({.config = FineConfig(), .batch_bytes = Bytes(2 * 128)});
  Store(FineHit());
  fake_.Lose(rig_->Key(0, TestHash(1, 3)));
  const WorkerReport report = Load(FineHit());
  EXPECT_EQ(fake_.Calls(FakePool::Call::kGet), 1);
  EXPECT_THAT(report.failed_blocks, ElementsAre(1, 3, 4));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kNotTried)], 2);
}

TEST_F(LoadWorkerTest, BatchesAreBounded) {
  Make({.config = FineConfig(), .batch_bytes = Bytes(3 * 128 + 127)});
  Store(FineHit());
  EXPECT_THAT(Load(FineHit()).loaded, ElementsAre("r"));
  EXPECT_THAT(KeysOfGet(0), SizeIs(3));
  EXPECT_THAT(KeysOfGet(1), SizeIs(1));
}

// Otherwise it would be found, leased and failed again for ever.
TEST_F(LoadWorkerTest, AnObjectOfAnotherSizeIsRemoved) {
  Make();
  Store(FineHit());
  fake_.Lose(rig_->Key(1, TestHash(1, 8)));
  fake_.Insert(rig_->Key(1, TestHash(1, 8)));
  const WorkerReport report = Load(FineHit());
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(4));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kWrongSize)], 1);
  EXPECT_FALSE(fake_.Contains(rig_->Key(1, TestHash(1, 8))));
}

TEST_F(LoadWorkerTest, APoolThatDoesNotAnswerFailsTheRequestAndRemovesNothing) {
  Make();
  Store(FineHit());
  pool_.set_before_call([](FaultyPool::Call) { return Unavailable("gone"); });
  const WorkerReport report = Load(FineHit());
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kUnavailable)], 4);
  EXPECT_EQ(report.operations[0].status, OperationStatus::kError);
  EXPECT_THAT(fake_.records(), IsEmpty());
}

TEST_F(LoadWorkerTest, WhatIsNotReadByTheDeadlineIsFailed) {
  Make({.config = FineConfig(), .load_deadline = absl::Seconds(1), .batch_bytes = Bytes(2 * 128)});
  Store(FineHit());
  pool_.set_before_call([this](FaultyPool::Call) {
    clock_.Advance(absl::Seconds(1));
    return absl::OkStatus();
  });
  const WorkerReport report = Load(FineHit());
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(3, 4));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kDeadline)], 2);
  EXPECT_TRUE(rig_->Holds(0, 1, 101, 7));
}

// One thread, in a get that does not end.
class BlockedLoadTest : public LoadWorkerTest {
 protected:
  BlockedLoadTest() {
    Make({.config = FineConfig(), .load_deadline = absl::Milliseconds(20)});
    Store(FineHit());
    pool_.set_before_call([this](FaultyPool::Call) {
      if (!std::exchange(begun_, true)) {
        has_begun_.set_value();
        end_.get_future().wait();
      }
      return absl::OkStatus();
    });
    rig_->worker().StartLoads(LoadPlan(FineHit("blocked")), 0);
    has_begun_.get_future().wait();
  }
  void ExpectTheBlockedOneIsLoaded() {
    end_.set_value();
    const WorkerReport report = rig_->Settle();
    EXPECT_THAT(report.loaded, ElementsAre("blocked"));
    EXPECT_THAT(report.failed, IsEmpty());
    EXPECT_TRUE(Right(FineHit()));
  }

  bool begun_ = false;
  std::promise<void> has_begun_, end_;
};

TEST_F(BlockedLoadTest, LoadsBehindItFailAtTheirDeadlines) {
  rig_->worker().StartLoads(LoadPlan(FineHit("behind")), 0);
  EXPECT_THAT(rig_->worker().TakeReport().failed, IsEmpty());
  clock_.Advance(absl::Milliseconds(10));
  rig_->worker().StartLoads(LoadPlan(FineHit("later")), 0);
  clock_.Advance(absl::Milliseconds(10));
  const WorkerReport report = rig_->worker().TakeReport();
  EXPECT_THAT(report.failed, ElementsAre("behind"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kDeadline)], 4);
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_THAT(rig_->worker().TakeReport().failed, ElementsAre("later"));
  EXPECT_THAT(rig_->worker().TakeReport().failed, IsEmpty());
  ExpectTheBlockedOneIsLoaded();
}

TEST_F(BlockedLoadTest, ALoadThatTheEngineWaitsForFailsAtItsDeadline) {
  std::future<void> engine =
      std::async(std::launch::async, [this] { rig_->worker().LoadNow(LoadPlan(FineHit("behind")), 0); });
  bool returned = false;
  for (int i = 0; i < 30'000 && !returned; ++i) {  // The order may be made after any of these.
    clock_.Advance(absl::Milliseconds(20));
    returned = engine.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  }
  EXPECT_TRUE(returned);
  EXPECT_THAT(rig_->worker().TakeReport().failed, ElementsAre("behind"));
  ExpectTheBlockedOneIsLoaded();
}

TEST_F(LoadWorkerTest, APlanThatNamesABlockTheEngineDoesNotHaveFailsThatRequestOnly) {
  Make();
  Store(FineHit());
  for (const BlockId bad : {BlockId{0}, BlockId{-1}, BlockId{64}, BlockId{INT32_MAX}}) {
    LoadOrder order = FineHit("bad");
    order.chunks[2].block = bad;
    const std::vector<std::byte> before = rig_->Memory();
    const WorkerReport report = Load(order);
    EXPECT_THAT(report.failed, ElementsAre("bad"));
    EXPECT_THAT(report.failed_blocks, ElementsAre(1, 2, 4));
    EXPECT_EQ(rig_->Memory(), before);
  }
  for (const int group : {-1, 2}) {
    LoadOrder order = FineHit("bad");
    order.chunks[0].group = GroupIndex(group);
    EXPECT_THAT(Load(order).failed, ElementsAre("bad"));
  }
  LoadOrder order = FineHit("bad");
  order.chunks[0].hash = kv::BlockHash();
  EXPECT_THAT(Load(order).failed, ElementsAre("bad"));
  EXPECT_THAT(Load(FineHit()).loaded, ElementsAre("r"));
}

TEST_F(LoadWorkerTest, LoadNowReturnsWithTheReportsThere) {
  Make({.config = FineConfig(), .load_threads = 4});
  Store(FineHit());
  StepPlan plan = LoadPlan(FineHit("a"));
  rig_->worker().LoadNow(plan, 0);
  EXPECT_THAT(rig_->worker().TakeReport().loaded, ElementsAre("a"));
  EXPECT_TRUE(Right(FineHit()));
  rig_->worker().LoadNow({}, 0);
  rig_->worker().Stop();
  rig_->worker().LoadNow(plan, 0);
  const WorkerReport report = rig_->worker().TakeReport();
  EXPECT_THAT(report.failed, ElementsAre("a"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(1, 2, 3, 4));
}

TEST_F(LoadWorkerTest, ARefusedOrderFailsWithItsBlocksAndReadsNothing) {
  Make();
  Store(FineHit());
  LoadOrder order = FineHit();
  order.refused = true;
  const std::vector<std::byte> before = rig_->Memory();
  const WorkerReport report = Load(order);
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(report.operations, IsEmpty());
  EXPECT_EQ(rig_->Memory(), before);
  order.chunks.clear();
  EXPECT_THAT(Load(order).failed, ElementsAre("r"));
}

TEST_F(LoadWorkerTest, AChunkOfSeveralShardsIsLoadedOnlyWhole) {
  const kv::CacheConfig::Options config{.hash_block_size = Tokens(16),
                                        .scheduler_block_size = Tokens(16),
                                        .fine = false,
                                        .use_eagle = false,
                                        .groups = {Full(16)}};
  Make({.config = config, .shards = 2});
  rig_->Fill(1, 7);
  StepPlan save;
  save.saves.push_back({.job = 1,
                        .request = "w",
                        .length = Tokens(16),
                        .prefill_end = Tokens(17),
                        .first_hash = 0,
                        .hashes = {TestHash(1, 0)},
                        .blocks = {{1}},
                        .boundary_puts = {},
                        .tokens = {}});
  rig_->worker().StartSaves(std::move(save), 0);
  EXPECT_EQ(rig_->Settle().counters.saved_keys_total, 2);
  LoadOrder order{.request = "r", .local = Tokens(0), .length = Tokens(16), .chunks = {Chunk(0, 5, 0)}};
  EXPECT_THAT(Load(order).loaded, ElementsAre("r"));
  EXPECT_TRUE(rig_->Holds(0, 5, 1, 7));
  fake_.Lose(rig_->Key(0, TestHash(1, 0), 1));
  const WorkerReport report = Load(order);
  EXPECT_THAT(report.failed, ElementsAre("r"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(5));
}

TEST_F(LoadWorkerTest, OptionsOutOfRangeAreNamed) {
  Make();
  BlockMemory::Options memory;
  std::vector<std::byte> bytes(1024);
  memory.num_blocks = 2;
  memory.regions = {{bytes.data(), 1024}};
  memory.groups = {{{{bytes.data(), 512, 512}}}, {{{bytes.data(), 512, 512}}}};
  const auto error = [&](auto change) {
    StoreWorkerOptions options{.config = kv::CacheConfig::Create(FineConfig()).value(),
                               .namespaces = {{rig_->name_space(0)}, {rig_->name_space(1)}}};
    options.stripes = {1, 1};
    change(options);
    const std::unique_ptr<Copier> copier = MakeHostCopier();
    const auto made =
        StoreWorker::Create(std::move(options), BlockMemory::Create(memory).value(), pool_, *copier, clock_);
    return std::string(Message(made.status()));
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.load_threads = 0; }), HasSubstr("load_threads is 0"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.load_threads = 65; }), HasSubstr("load_threads is 65"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.load_deadline = absl::ZeroDuration(); }),
              HasSubstr("load_deadline"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.stripes = {1}; }), HasSubstr("stripes 1"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.stripes = {1, 0}; }), HasSubstr("stripes[1] is 0"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.namespaces[1].clear(); }), HasSubstr("namespaces[1]"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.retention = Tokens(8); }), HasSubstr("retention is 8"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.tp_rank = -1; }), HasSubstr("tp_rank is -1"));
  EXPECT_THAT(error([](StoreWorkerOptions& options) { options.batch_bytes = Bytes(0); }),
              HasSubstr("batch_bytes is 0"));
}

}  // namespace
}  // namespace tenure::engine
