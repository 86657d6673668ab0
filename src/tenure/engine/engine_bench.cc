// Saves and loads 1 GiB of KV as an engine does, through the embedded pool and a daemon in a process of its own,
// against memcpy of the same pieces in the same run (counter `of_memcpy`). A block is a piece in each of 32 layers; an
// object is the 32 pieces of a block. Arguments: bytes of a piece.
//
// Limit: 60 % of memcpy, save and load, both pools.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/clock.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/engine/engine_rig_testing.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::engine {
namespace {

constexpr int64_t kWorkingSet = int64_t{1} << 30;
constexpr int64_t kLayers = 32;
constexpr int64_t kPoolBytes = kWorkingSet + (int64_t{256} << 20);

// The engine's KV cache: an allocation a layer, and as much again that loads go to.
class KvCache {
 public:
  explicit KvCache(int64_t piece_bytes) : piece_bytes_(piece_bytes), blocks_(kWorkingSet / (piece_bytes * kLayers)) {
    memory_.num_blocks = 1 + blocks_;
    auto& pieces = memory_.groups.emplace_back().emplace_back();
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const auto bytes = static_cast<size_t>(memory_.num_blocks * piece_bytes);
      layers_.emplace_back(bytes, std::byte{1});
      copies_.emplace_back(bytes, std::byte{2});
      memory_.regions.push_back({layers_.back().data(), static_cast<int64_t>(bytes)});
      pieces.push_back({layers_.back().data(), piece_bytes, piece_bytes});
    }
  }
  int64_t blocks() const { return blocks_; }
  const BlockMemory::Options& memory() const { return memory_; }
  // All blocks' pieces, in the order in which objects are copied.
  absl::Duration Memcpy() {
    const MonotonicClock clock;
    const MonotonicTime start = clock.Now();
    const auto bytes = static_cast<size_t>(piece_bytes_);
    for (int64_t block = 1; block <= blocks_; ++block) {
      const auto at = static_cast<size_t>(block * piece_bytes_);
      for (size_t layer = 0; layer < kLayers; ++layer) {
        std::memcpy(copies_[layer].data() + at, layers_[layer].data() + at, bytes);
      }
    }
    benchmark::ClobberMemory();
    return clock.Now() - start;
  }

 private:
  const int64_t piece_bytes_;
  const int64_t blocks_;
  std::vector<std::vector<std::byte>> layers_;
  std::vector<std::vector<std::byte>> copies_;
  BlockMemory::Options memory_;
};

// A pool of either kind for the time of a benchmark.
class BenchPool {
 public:
  explicit BenchPool(bool use_daemon) {
    if (!use_daemon) {
      store::EmbeddedPoolOptions options;
      options.capacity = Bytes(kPoolBytes);
      pool_ = store::EmbeddedPool::Create(std::move(options), clock_).value();
      return;
    }
    daemon::TestDaemonOptions options;
    options.capacity = Bytes(kPoolBytes);
    options.slab_bytes = Bytes(int64_t{64} << 20);
    path_ = folder_.File("pool.sock");
    process_ = std::make_unique<daemon::TestProcess>(
        [this, options](const daemon::TestProcess::Line& line) { return ServeInProcess(line, path_, options); });
    process_->Say();
    TENURE_CHECK(process_->Hear());
    daemon::DaemonPoolOptions client;
    client.socket_path = path_;
    client.call_deadline = absl::Seconds(60);
    pool_ = daemon::DaemonPool::Connect(client, clock_).value();
  }
  store::Pool& pool() { return *pool_; }
  const Clock& clock() const { return clock_; }

 private:
  const MonotonicClock clock_;
  const daemon::TempFolder folder_;
  std::string path_;
  std::unique_ptr<daemon::TestProcess> process_;
  std::unique_ptr<store::Pool> pool_;
};

class Engine {
 public:
  Engine(KvCache& cache, BenchPool& pool) : cache_(cache), host_(MakeHostCopier()) {
    const kv::GroupSpec full{kv::GroupKind::kFull, Tokens(16), Tokens(), Tokens(), false};
    StoreWorkerOptions options{.config = kv::CacheConfig::Create({.hash_block_size = Tokens(16),
                                                                  .scheduler_block_size = Tokens(16),
                                                                  .fine = false,
                                                                  .use_eagle = false,
                                                                  .groups = {full}})
                                             .value(),
                               .namespaces = {{pool.pool().OpenNamespace("bench@").value()}}};
    options.stripes = {1};
    options.retention = Tokens(0);
    options.load_deadline = absl::Seconds(60);
    worker_ = StoreWorker::Create(std::move(options), BlockMemory::Create(cache.memory()).value(), pool.pool(), *host_,
                                  pool.clock())
                  .value();
  }
  // One request that fills the working set.
  absl::Duration Save(uint64_t prompt) {
    SaveOrder order;
    order.job = prompt;
    order.request = std::to_string(prompt);
    order.length = Tokens(cache_.blocks() * 16);
    order.prefill_end = order.length + Tokens(1);
    order.hashes = TestHashes(prompt, 0, cache_.blocks());
    order.blocks.emplace_back();
    for (int64_t block = 1; block <= cache_.blocks(); ++block) {
      order.blocks[0].push_back(static_cast<BlockId>(block));
    }
    StepPlan plan;
    plan.saves.push_back(std::move(order));
    const MonotonicTime start = clock_.Now();
    worker_->StartSaves(std::move(plan), 0);
    TENURE_CHECK(worker_->Drain(absl::Minutes(5)));
    const absl::Duration took = clock_.Now() - start;
    const WorkerReport report = worker_->TakeReport();
    TENURE_CHECK(report.counters.failed_save_jobs_total == 0 && report.counters.present_keys_total == 0);
    return took;
  }
  absl::Duration Load(uint64_t prompt) {
    LoadOrder order{.request = std::to_string(prompt), .local = Tokens(0), .length = Tokens(0), .chunks = {}};
    for (int64_t block = 1; block <= cache_.blocks(); ++block) {
      order.chunks.push_back({kv::GroupIndex(0), static_cast<BlockId>(block), TestHash(prompt, block - 1)});
    }
    StepPlan plan;
    plan.loads.push_back(std::move(order));
    const MonotonicTime start = clock_.Now();
    worker_->LoadNow(std::move(plan), 0);
    const absl::Duration took = clock_.Now() - start;
    TENURE_CHECK(worker_->TakeReport().loaded.size() == 1);
    return took;
  }

 private:
  KvCache& cache_;
  const MonotonicClock clock_;
  std::unique_ptr<Copier> host_;
  std::unique_ptr<StoreWorker> worker_;
};

template <typename Call>
void Measure(benchmark::State& state, KvCache& cache, Call call) {
  absl::Duration copying;
  absl::Duration calling;
  cache.Memcpy();  // Takes the pages.
  for (auto _ : state) {
    copying += cache.Memcpy();
    const absl::Duration took = call();
    calling += took;
    state.SetIterationTime(absl::ToDoubleSeconds(took));
  }
  const double bytes = static_cast<double>(state.iterations() * kWorkingSet);
  state.counters["of_memcpy"] = absl::FDivDuration(copying, calling);
  state.counters["GB_per_s"] = bytes / absl::ToDoubleSeconds(calling) / 1e9;
  state.counters["memcpy_GB_per_s"] = bytes / absl::ToDoubleSeconds(copying) / 1e9;
}

void Save(benchmark::State& state, bool use_daemon) {
  KvCache cache(state.range(0));
  BenchPool pool(use_daemon);
  Engine engine(cache, pool);
  uint64_t prompt = 0;
  engine.Save(++prompt);  // The pool's pages, and the mapping of the daemon's.
  Measure(state, cache, [&] {
    TENURE_CHECK(pool.pool().Clear(std::nullopt).ok());
    return engine.Save(++prompt);
  });
}
void Load(benchmark::State& state, bool use_daemon) {
  KvCache cache(state.range(0));
  BenchPool pool(use_daemon);
  Engine engine(cache, pool);
  engine.Save(1);
  Measure(state, cache, [&] { return engine.Load(1); });
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(32 << 10)->Arg(128 << 10)->Arg(1 << 20)->UseManualTime()->Iterations(4)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(Save, embedded, false)->Apply(Sizes);
BENCHMARK_CAPTURE(Load, embedded, false)->Apply(Sizes);
BENCHMARK_CAPTURE(Save, daemon, true)->Apply(Sizes);
BENCHMARK_CAPTURE(Load, daemon, true)->Apply(Sizes);

}  // namespace
}  // namespace tenure::engine
