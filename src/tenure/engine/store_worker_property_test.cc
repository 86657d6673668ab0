// A worker under random orders, faults, preemptions and ends, with its threads running against the test's: every job
// and every load is reported exactly once, what is reported as loaded has its bytes, and what is found in the pool was
// put whole.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/engine/engine_rig_testing.h"
#include "tenure/engine/faulty_pool_testing.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::engine {
namespace {

using kv::GroupIndex;
using kv::GroupKind;
using kv::GroupSpec;
using store::KeyAnswer;
using store::PutAnswer;

constexpr int64_t kChunksMax = 12;  // Of a prompt.
constexpr int kPrompts = 6;
constexpr BlockId kPromptBlocks = 3 * kChunksMax;  // Blocks that hold one prompt's KV of both groups and its states.
constexpr BlockId kLoadBlocks = 64;                // After the prompts'.

kv::CacheConfig::Options Config() {
  return {.hash_block_size = Tokens(16),
          .scheduler_block_size = Tokens(16),
          .fine = false,
          .use_eagle = false,
          .groups = {{GroupKind::kFull, Tokens(16), Tokens(), Tokens(), false},
                     {GroupKind::kWindow, Tokens(16), Tokens(32), Tokens(), false},
                     {GroupKind::kState, Tokens(16), Tokens(), Tokens(), false}}};
}

// Block of chunk `k` of a group of a prompt, in the engine of the test: prompts have blocks of their own that never
// change, so that a late read of them is right as well.
BlockId BlockOf(int prompt, int group, int64_t k) {
  return static_cast<BlockId>(1 + prompt * kPromptBlocks + group * kChunksMax + k);
}

// Answers at random; thread-safe.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  bool Chance(double probability) {
    MutexLock lock(mutex_);
    return random_.Chance(probability);
  }
  uint64_t Below(uint64_t bound) {
    MutexLock lock(mutex_);
    return random_.Below(bound);
  }

 private:
  Mutex mutex_;
  Random random_ ABSL_GUARDED_BY(mutex_);
};

class RandomHistory {
 public:
  RandomHistory(uint64_t seed, store::PoolMode mode)
      : random_(seed), dice_(seed + 1), pool_(MakePool(mode)), faulty_(*pool_) {
    SetFaults();
    rig_ = std::make_unique<EngineRig>(
        EngineRigOptions{.config = Config(),
                         .num_blocks = 1 + kPrompts * kPromptBlocks + kLoadBlocks,
                         .piece_bytes = 64,
                         .retention = Tokens(16),
                         .load_threads = 2,
                         .events = true,
                         .batch_bytes = Bytes(static_cast<int64_t>(128 * (1 + random_.Below(5))))},
        faulty_, clock_);
    for (BlockId block = 1; block <= kPrompts * kPromptBlocks; ++block) rig_->Fill(block, 7);
  }

  void Run(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      Step();
      if (random_.Chance(0.3)) Take(rig_->worker().TakeReport());
    }
    if (random_.Chance(0.3)) rig_->worker().Stop();
    Take(rig_->Settle());
    EXPECT_TRUE(jobs_.empty()) << jobs_.size() << " jobs were not reported";
    EXPECT_TRUE(loads_.empty()) << loads_.size() << " loads were not reported";
    CheckPool();
  }
  int64_t loaded() const { return loaded_; }
  int64_t failed() const { return failed_; }
  int64_t stored() const { return stored_; }

 private:
  struct Sent {
    int prompt = 0;
    int64_t hashes = 0;
  };

  std::unique_ptr<store::EmbeddedPool> MakePool(store::PoolMode mode) {
    store::EmbeddedPoolOptions options;
    options.capacity = Bytes(16 << 10);  // A little less than all prompts need.
    options.slab_bytes = Bytes(4 << 10);
    options.mode = mode;
    options.shards = 4;
    options.objects_max = 4096;
    return store::EmbeddedPool::Create(options, clock_).value();
  }
  void SetFaults() {
    faulty_.set_before_call([this](FaultyPool::Call) {
      for (uint64_t turns = dice_.Below(4); turns > 0; --turns) std::this_thread::yield();
      return dice_.Chance(0.05) ? Unavailable("a fault of the test") : absl::OkStatus();
    });
    faulty_.set_on_put([this](const store::PutObject&) -> std::optional<PutAnswer> {
      if (!dice_.Chance(0.05)) return std::nullopt;
      constexpr std::array kAnswers = {PutAnswer::kBusy, PutAnswer::kRefusedFull, PutAnswer::kNotStored,
                                       PutAnswer::kRefusedWaiting, PutAnswer::kSizeDiffers};
      return kAnswers[dice_.Below(kAnswers.size())];
    });
    faulty_.set_on_get([this](const store::GetObject& object) -> std::optional<KeyAnswer> {
      if (!dice_.Chance(0.03)) return std::nullopt;
      // Wrong bytes have landed when a digest fails.
      for (const store::Segment& segment : object.segments) segment.data[0] ^= std::byte{0xFF};
      return dice_.Chance(0.5) ? KeyAnswer::kAbsent : KeyAnswer::kUnavailable;
    });
  }

  void Step() {
    StepPlan plan;
    const uint64_t saves = random_.Below(3);
    for (uint64_t i = 0; i < saves; ++i) {
      const std::string request = "r" + std::to_string(random_.Below(4));
      if (random_.Chance(0.1)) {
        plan.preempted.push_back(request);
        sent_.erase(request);
      }
      plan.saves.push_back(NextOrder(request));
      if (random_.Chance(0.1)) {
        plan.finished.push_back(request);
        finished_.push_back(request);
      }
    }
    StepPlan loads;
    if (random_.Chance(0.5)) loads.loads.push_back(NextLoad());
    if (random_.Chance(0.2)) {
      rig_->worker().LoadNow(std::move(loads), 0);
    } else {
      rig_->worker().StartLoads(std::move(loads), 0);
    }
    rig_->worker().StartSaves(std::move(plan), 0);
    for (const std::string& request : finished_) sent_.erase(request);
    finished_.clear();
  }

  SaveOrder NextOrder(const std::string& request) {
    const bool known = sent_.contains(request);
    Sent& sent = sent_[request];
    if (!known) sent.prompt = static_cast<int>(random_.Below(kPrompts));
    const int64_t end = std::min<int64_t>(kChunksMax, sent.hashes + static_cast<int64_t>(random_.Below(5)));
    SaveOrder order{.job = ++last_job_,
                    .request = request,
                    .length = Tokens(16 * end),
                    .prefill_end = Tokens(16 * kChunksMax),
                    .first_hash = sent.hashes,
                    .hashes = TestHashes(static_cast<uint64_t>(sent.prompt), sent.hashes, end),
                    .blocks = {{}, {}, {}},
                    .boundary_puts = {},
                    .tokens = {Tokens(16 * sent.hashes),
                               std::vector<int32_t>(static_cast<size_t>(16 * (end - sent.hashes)), sent.prompt)}};
    for (int group = 0; group < 3; ++group) {
      for (int64_t k = 0; k < end; ++k) {
        const bool is_null = group == 1 && random_.Chance(0.2);
        order.blocks[static_cast<size_t>(group)].push_back(is_null ? kNullBlock : BlockOf(sent.prompt, group, k));
      }
    }
    if (end > 0 && random_.Chance(0.5)) {
      order.boundary_puts.push_back({GroupIndex(2), BlockOf(sent.prompt, 2, end - 1), Tokens(16 * end)});
    }
    if (random_.Chance(0.02)) order.blocks[0].assign(1, INT32_MAX);
    sent.hashes = end;
    jobs_.insert(order.job);
    return order;
  }

  LoadOrder NextLoad() {
    const int prompt = static_cast<int>(random_.Below(kPrompts));
    const int64_t end = 1 + static_cast<int64_t>(random_.Below(kChunksMax));
    LoadOrder order{
        .request = "l" + std::to_string(++last_load_), .local = Tokens(0), .length = Tokens(16 * end), .chunks = {}};
    for (int64_t k = 0; k < end; ++k) {
      for (int group = 0; group < 3; ++group) {
        if (group == 2 && k + 1 < end) continue;
        const std::optional<BlockId> block = FreeBlock();
        if (!block) continue;
        order.chunks.push_back({GroupIndex(group), *block, TestHash(static_cast<uint64_t>(prompt), k)});
        loads_[order.request].emplace_back(order.chunks.back(), BlockOf(prompt, group, k));
      }
    }
    if (order.chunks.empty()) loads_[order.request] = {};
    return order;
  }
  // A block that no load under way writes.
  std::optional<BlockId> FreeBlock() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const auto block = static_cast<BlockId>(1 + kPrompts * kPromptBlocks + random_.Below(kLoadBlocks));
      if (used_.insert(block).second) return block;
    }
    return std::nullopt;
  }

  void Take(const WorkerReport& report) {
    for (const uint64_t job : report.saved) ASSERT_EQ(jobs_.erase(job), 1u) << "job " << job << " twice or unknown";
    const std::set<BlockId> failed_blocks(report.failed_blocks.begin(), report.failed_blocks.end());
    // An order without chunks can fail too (the end of the worker), and then no block does.
    ASSERT_TRUE(failed_blocks.empty() || !report.failed.empty());
    for (const std::string& request : report.loaded) EndLoad(request, {});
    for (const std::string& request : report.failed) EndLoad(request, failed_blocks);
    loaded_ += static_cast<int64_t>(report.loaded.size());
    failed_ += static_cast<int64_t>(report.failed.size());
    for (const StoredEvent& event : report.events) {
      ASSERT_TRUE(event.token_ids.empty() || event.token_ids.size() == 16u);
    }
    stored_ = report.counters.saved_keys_total;
  }
  void EndLoad(const std::string& request, const std::set<BlockId>& failed_blocks) {
    ASSERT_TRUE(loads_.contains(request)) << request << " twice or unknown";
    for (const auto& [chunk, as] : loads_[request]) {
      used_.erase(chunk.block);
      if (failed_blocks.contains(chunk.block)) continue;
      ASSERT_TRUE(rig_->Holds(chunk.group.value(), chunk.block, as, 7)) << request << " block " << chunk.block;
    }
    loads_.erase(request);
  }

  // Every object of every prompt that is there has the bytes of its block, and on a closed pool its predecessor is
  // there.
  void CheckPool() {
    for (int prompt = 0; prompt < kPrompts; ++prompt) {
      bool before = true;
      for (int64_t k = 0; k < kChunksMax; ++k) {
        const bool here = Present(prompt, 0, k);
        ASSERT_TRUE(before || !here || !pool_->traits().closed) << "prompt " << prompt << " chunk " << k;
        before = here;
      }
    }
  }
  bool Present(int prompt, int group, int64_t k) {
    const store::ObjectKey key = rig_->Key(group, TestHash(static_cast<uint64_t>(prompt), k));
    KeyAnswer answer = KeyAnswer::kUnavailable;
    EXPECT_TRUE(pool_->Probe({&key, 1}, {&answer, 1}).ok());
    return answer == KeyAnswer::kPresent;
  }

  Random random_;
  Dice dice_;
  const MonotonicClock clock_;
  std::unique_ptr<store::EmbeddedPool> pool_;
  FaultyPool faulty_;
  std::unique_ptr<EngineRig> rig_;
  std::map<std::string, Sent> sent_;
  std::vector<std::string> finished_;
  std::set<uint64_t> jobs_;  // Not yet reported.
  uint64_t last_job_ = 0;
  uint64_t last_load_ = 0;
  std::map<std::string, std::vector<std::pair<LoadChunk, BlockId>>> loads_;  // Not yet reported; as which block.
  std::set<BlockId> used_;
  int64_t loaded_ = 0;
  int64_t failed_ = 0;
  int64_t stored_ = 0;
};

TEST(StoreWorker, RandomHistoriesReportEverythingOnceAndLoadNoWrongByte) {
  const uint64_t first_seed = 20261129;
  int64_t loaded = 0;
  int64_t failed = 0;
  int64_t stored = 0;
  const int64_t histories = RandomCases(400);
  for (int64_t i = 0; i < histories; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomHistory history(seed, i % 2 == 0 ? store::PoolMode::kClosed : store::PoolMode::kIndependent);
    history.Run(60);
    loaded += history.loaded();
    failed += history.failed();
    stored += history.stored();
    if (::testing::Test::HasFatalFailure()) return;
  }
  // The faults leave enough that works.
  EXPECT_GT(loaded, histories);
  EXPECT_GT(failed, histories);
  EXPECT_GT(stored, 20 * histories);
}

}  // namespace
}  // namespace tenure::engine
