// A lookup with its lease on the embedded pool: prompts of 1k to 1M tokens at block 16, full attention and a hybrid of
// full attention and three state groups over eight ranks, on a closed and an independent pool. The hit is the whole
// prompt, its half, or nothing.
//
// Limits (this machine, closed pool, whole prompt): full attention 20 us at 100k tokens and 60 us at 1M; the hybrid 100
// us.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/clock.h"
#include "tenure/connector/lookup.h"
#include "tenure/kv/random_hashes_testing.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::connector {
namespace {

constexpr int64_t kBlock = 16;
constexpr int kStateGroups = 3;
constexpr int kStateRanks = 8;

enum class Store : int64_t { kClosed, kIndependent };
enum class Stored : int64_t { kAll, kHalf, kNothing };

kv::CacheConfig MakeConfig(bool hybrid) {
  kv::CacheConfig::Options options;
  options.hash_block_size = options.scheduler_block_size = Tokens(kBlock);
  kv::GroupSpec full;
  full.block_size = Tokens(kBlock);
  options.groups = {full};
  for (int i = 0; hybrid && i < kStateGroups; ++i) {
    kv::GroupSpec state;
    state.kind = kv::GroupKind::kState;
    state.block_size = Tokens(kBlock);
    options.groups.push_back(state);
  }
  auto config = kv::CacheConfig::Create(options);
  TENURE_CHECK(config.ok());
  return *std::move(config);
}

// A pool that holds the first `stored` chunks of a prompt, with states at every chunk's end, each object of one byte.
class World {
 public:
  World(bool hybrid, Store store, int64_t chunks, int64_t stored, kv::SearchMode mode)
      : config_(MakeConfig(hybrid)), hashes_(kv::RandomHashes(chunks)), source_(hashes_) {
    const int64_t ranks = hybrid ? 1 + kStateGroups * kStateRanks : 1;
    store::EmbeddedPoolOptions options;
    options.objects_max = std::max<int64_t>(stored * ranks * 5 / 4, 4096);
    options.slab_bytes = Bytes(int64_t{1} << 20);
    options.capacity = Bytes(std::max<int64_t>(options.objects_max * 64, int64_t{64} << 20));
    options.mode = store == Store::kClosed ? store::PoolMode::kClosed : store::PoolMode::kIndependent;
    options.memory = store::MemoryKind::kVirtual;
    auto pool = store::EmbeddedPool::Create(options, clock_);
    TENURE_CHECK(pool.ok());
    pool_ = *std::move(pool);
    for (size_t group = 0; group < config_.groups().size(); ++group) {
      namespaces_.emplace_back();
      for (int rank = 0; rank < (group == 0 ? 1 : kStateRanks); ++rank) {
        namespaces_.back().push_back(
            *pool_->OpenNamespace("group:" + std::to_string(group) + "@rank:" + std::to_string(rank)));
      }
    }
    for (int64_t chunk = 0; chunk < stored; ++chunk) Put(static_cast<size_t>(chunk));
    LookupOptions lookup_options;
    lookup_options.mode = mode;
    auto lookup = Lookup::Create(config_, *pool_, namespaces_, lookup_options);
    TENURE_CHECK(lookup.ok());
    lookup_ = std::make_unique<Lookup>(*std::move(lookup));
  }

  LookupResult Find() { return lookup_->Find(source_, Tokens(static_cast<int64_t>(hashes_.size()) * kBlock + 1)); }

 private:
  void Put(size_t chunk) {
    const store::ConstSegment segment{nullptr, 64};
    const store::ObjectKey full{namespaces_[0][0], hashes_[chunk]};
    std::vector<store::PutObject> objects(1);
    objects[0] = {full, {&segment, 1}, std::nullopt, store::ObjectKind::kFull};
    if (chunk > 0) objects[0].parent = store::ObjectKey{namespaces_[0][0], hashes_[chunk - 1]};
    for (size_t group = 1; group < namespaces_.size(); ++group) {
      for (const kv::NamespaceId name_space : namespaces_[group]) {
        objects.push_back({{name_space, hashes_[chunk]}, {&segment, 1}, full, store::ObjectKind::kState});
      }
    }
    std::vector<store::PutAnswer> answers(objects.size());
    TENURE_CHECK(pool_->Put(objects, answers).ok());
    for (const store::PutAnswer answer : answers) TENURE_CHECK(answer == store::PutAnswer::kStored);
  }

  kv::CacheConfig config_;
  std::vector<kv::BlockHash> hashes_;
  SpanHashSource source_;
  MonotonicClock clock_;
  std::unique_ptr<store::EmbeddedPool> pool_;
  GroupNamespaces namespaces_;
  std::unique_ptr<Lookup> lookup_;
};

void RunLookup(benchmark::State& state, bool hybrid, kv::SearchMode mode = kv::SearchMode::kTailFirst) {
  const auto store = static_cast<Store>(state.range(1));
  const auto stored = static_cast<Stored>(state.range(2));
  const int64_t chunks = state.range(0) / kBlock;
  const int64_t kept = stored == Stored::kAll ? chunks : stored == Stored::kHalf ? chunks / 2 : 0;
  World world(hybrid, store, chunks, kept, mode);
  LookupCost cost;
  for (auto _ : state) {
    const LookupResult result = world.Find();
    TENURE_CHECK(result.hit.length == Tokens(kept * kBlock));
    cost = result.cost;
  }
  state.counters["probed"] = static_cast<double>(cost.keys_probed);
  state.counters["leased"] = static_cast<double>(cost.keys_leased);
  state.counters["calls"] = static_cast<double>(cost.probe_calls + cost.lease_calls);
}

void BM_LookupFull(benchmark::State& state) { RunLookup(state, /*hybrid=*/false); }
// What tail-first saves.
void BM_LookupFullExhaustive(benchmark::State& state) {
  RunLookup(state, /*hybrid=*/false, kv::SearchMode::kExhaustive);
}
void BM_LookupHybrid(benchmark::State& state) { RunLookup(state, /*hybrid=*/true); }

// "stored" is 0 for the whole prompt, 1 for its half, 2 for nothing.
void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "independent", "stored"})->Unit(benchmark::kMicrosecond);
  bench->ArgsProduct({{1'000, 10'000, 100'000, 1'000'000}, {0, 1}, {0, 1, 2}});
}
BENCHMARK(BM_LookupFull)->Apply(Sizes);
BENCHMARK(BM_LookupFullExhaustive)->Apply(Sizes);
BENCHMARK(BM_LookupHybrid)->Apply(Sizes);

}  // namespace
}  // namespace tenure::connector
