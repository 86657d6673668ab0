// Benchmarks of the embedded pool: the index at 10^6 and 10^7 objects, eviction, and bytes against memcpy.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/base/random.h"
#include "tenure/base/units.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::store {
namespace {

constexpr int64_t kSmallObject = 4096;
constexpr int64_t kPutBatch = 256;

ObjectKey MakeKey(NamespaceId space, uint64_t number) {
  std::array<uint8_t, 32> bytes{};
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t word = Random::Mix(number * 4 + i + 1);
    std::memcpy(bytes.data() + i * 8, &word, sizeof word);
  }
  return {.name_space = space, .hash = kv::BlockHash::FromTrusted(bytes)};
}

// A pool without bytes; time is moved by hand so that recency spreads over buckets.
class IndexWorld {
 public:
  IndexWorld(int64_t objects, PoolMode mode) {
    EmbeddedPoolOptions options;
    const int64_t slab = options.slab_bytes.value();
    options.capacity = Bytes(CeilDiv(objects * kSmallObject, slab) * slab);
    options.objects_max = options.capacity.value() / kSmallObject;
    options.mode = mode;
    options.memory = MemoryKind::kVirtual;
    pool_ = EmbeddedPool::Create(options, clock_).value();
    space_ = pool_->OpenNamespace("bench@tp0").value();
  }

  // The next objects, in chains of 1,000; returns how many were stored.
  int64_t PutNext(int64_t count) {
    const std::array<ConstSegment, 1> segments = {{{.data = nullptr, .size = kSmallObject}}};
    std::vector<PutObject> objects;
    std::vector<PutAnswer> answers(kPutBatch);
    int64_t stored = 0;
    for (int64_t done = 0; done < count; done += static_cast<int64_t>(objects.size())) {
      objects.clear();
      for (int64_t i = 0; i < std::min(kPutBatch, count - done); ++i, ++next_) {
        const bool first = next_ % 1'000 == 0;
        objects.push_back({.key = MakeKey(space_, next_),
                           .segments = segments,
                           .parent = first ? std::nullopt : std::optional(MakeKey(space_, next_ - 1))});
      }
      if (!pool_->Put(objects, std::span(answers).first(objects.size())).ok()) return -1;
      for (size_t i = 0; i < objects.size(); ++i) stored += answers[i] == PutAnswer::kStored;
      clock_.Advance(absl::Milliseconds(1));
    }
    return stored;
  }

  // Batches of random present keys, more of them than a cache holds.
  std::vector<std::vector<ObjectKey>> RandomBatches(int64_t batch) const {
    Random random(7);
    std::vector<std::vector<ObjectKey>> batches(static_cast<size_t>(std::max<int64_t>(8, 400'000 / batch)));
    for (auto& keys : batches) {
      for (int64_t i = 0; i < batch; ++i) keys.push_back(MakeKey(space_, random.Below(next_)));
    }
    return batches;
  }

  EmbeddedPool& pool() { return *pool_; }
  ManualClock& clock() { return clock_; }

 private:
  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
  NamespaceId space_;
  uint64_t next_ = 0;
};

// Filled once for all benchmarks of a size, one size at a time.
IndexWorld& FilledWorld(int64_t objects) {
  static std::optional<std::pair<int64_t, std::unique_ptr<IndexWorld>>> current;
  if (!current || current->first != objects) {
    current.reset();
    auto world = std::make_unique<IndexWorld>(objects, PoolMode::kClosed);
    world->PutNext(objects);
    current.emplace(objects, std::move(world));
  }
  return *current->second;
}

void ReportKeys(benchmark::State& state, int64_t batch) {
  state.SetItemsProcessed(state.iterations() * batch);
  state.counters["per_key"] = benchmark::Counter(static_cast<double>(state.iterations() * batch),
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Probe(benchmark::State& state) {
  IndexWorld& world = FilledWorld(state.range(0));
  const auto batches = world.RandomBatches(state.range(1));
  std::vector<KeyAnswer> answers(static_cast<size_t>(state.range(1)));
  size_t next = 0;
  for (auto _ : state) {
    if (!world.pool().Probe(batches[next], answers).ok()) state.SkipWithError("probe failed");
    next = next + 1 == batches.size() ? 0 : next + 1;
  }
  if (std::count(answers.begin(), answers.end(), KeyAnswer::kPresent) != state.range(1)) state.SkipWithError("a miss");
  ReportKeys(state, state.range(1));
}

void BM_Lease(benchmark::State& state) {
  IndexWorld& world = FilledWorld(state.range(0));
  const auto batches = world.RandomBatches(state.range(1));
  std::vector<KeyAnswer> answers(static_cast<size_t>(state.range(1)));
  size_t next = 0;
  for (auto _ : state) {
    absl::StatusOr<Lease> lease = world.pool().AcquireLease(batches[next], absl::Seconds(10), answers);
    if (!lease.ok()) state.SkipWithError("lease failed");
    lease->Forget();
    next = next + 1 == batches.size() ? 0 : next + 1;
  }
  ReportKeys(state, state.range(1));
}

void BM_LeaseAndRelease(benchmark::State& state) {
  IndexWorld& world = FilledWorld(state.range(0));
  const auto batches = world.RandomBatches(state.range(1));
  std::vector<KeyAnswer> answers(static_cast<size_t>(state.range(1)));
  size_t next = 0;
  for (auto _ : state) {
    if (!world.pool().AcquireLease(batches[next], absl::Seconds(10), answers).ok()) state.SkipWithError("lease failed");
    next = next + 1 == batches.size() ? 0 : next + 1;
  }
  ReportKeys(state, state.range(1));
}

void IndexSizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t objects : {1'000'000, 10'000'000}) {
    for (const int64_t batch : {1, 100, 10'000}) bench->Args({objects, batch});
  }
}
BENCHMARK(BM_Probe)->ArgNames({"objects", "batch"})->Apply(IndexSizes);
BENCHMARK(BM_Lease)->ArgNames({"objects", "batch"})->Apply(IndexSizes);
BENCHMARK(BM_LeaseAndRelease)->ArgNames({"objects", "batch"})->Apply(IndexSizes);

void BM_IndexBytes(benchmark::State& state) {
  IndexWorld& world = FilledWorld(state.range(0));
  PoolStats stats;
  for (auto _ : state) benchmark::DoNotOptimize(stats = world.pool().Stats());
  state.counters["index_bytes_per_object"] =
      static_cast<double>(stats.index_bytes.value()) / static_cast<double>(stats.objects);
}
BENCHMARK(BM_IndexBytes)->ArgName("objects")->Arg(1'000'000)->Arg(10'000'000);

// A put into a full pool: each one evicts first.
void BM_PutUnderPressure(benchmark::State& state) {
  IndexWorld world(1'000'000, state.range(0) != 0 ? PoolMode::kClosed : PoolMode::kIndependent);
  world.PutNext(1'000'000);
  world.clock().Advance(absl::Minutes(1));
  int64_t stored = 0;
  for (auto _ : state) stored += world.PutNext(kPutBatch);
  if (stored != state.iterations() * kPutBatch) state.SkipWithError("a put was refused");
  ReportKeys(state, kPutBatch);
}
BENCHMARK(BM_PutUnderPressure)->ArgName("closed")->Arg(0)->Arg(1);

// One watermark pass from above the high to the low one, by the victim.
void BM_PassByVictim(benchmark::State& state) {
  IndexWorld world(1'000'000, state.range(0) != 0 ? PoolMode::kClosed : PoolMode::kIndependent);
  world.PutNext(1'000'000);
  int64_t victims = 0;
  for (auto _ : state) {
    const int64_t before = world.pool().Stats().evicted_total;
    const auto start = std::chrono::steady_clock::now();
    while (world.pool().Maintain()) {
    }
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    const int64_t evicted = world.pool().Stats().evicted_total - before;
    victims += evicted;
    world.PutNext(evicted);
  }
  state.counters["per_victim"] =
      benchmark::Counter(static_cast<double>(victims), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_PassByVictim)->ArgName("closed")->Arg(0)->Arg(1)->UseManualTime()->Iterations(5);

// Blocks of a working set move in strides of 32 MiB (or all of a smaller set), put or get and memcpy by turns and half
// a set apart, so that both find the caches in the same state.
class BytesWorld {
 public:
  BytesWorld(int64_t working_set, int64_t object)
      : object_(object), count_(working_set / object), source_(Touched(working_set)), target_(Touched(working_set)) {
    EmbeddedPoolOptions options;
    options.slab_bytes = Bytes(std::min(working_set, options.slab_bytes.value()));
    options.capacity = Bytes(working_set);
    options.objects_max = std::max<int64_t>(1024, 2 * count_);
    pool_ = EmbeddedPool::Create(options, clock_).value();
    space_ = pool_->OpenNamespace("bench@tp0").value();
  }

  int64_t count() const { return count_; }
  int64_t stride() const { return std::min(count_, CeilDiv(int64_t{32} << 20, object_)); }
  bool Put(int64_t index) {
    const std::array<ConstSegment, 1> segments = {{{.data = source_.data() + index * object_, .size = Size()}}};
    const PutObject put = {.key = Key(index), .segments = segments, .parent = std::nullopt};
    PutAnswer answer = PutAnswer::kNotStored;
    return pool_->Put({&put, 1}, {&answer, 1}).ok() && answer == PutAnswer::kStored;
  }
  bool Get(int64_t index) {
    const std::array<Segment, 1> segments = {{{.data = target_.data() + index * object_, .size = Size()}}};
    const GetObject get = {.key = Key(index), .segments = segments};
    KeyAnswer answer = KeyAnswer::kAbsent;
    return pool_->Get({&get, 1}, {&answer, 1}).ok() && answer == KeyAnswer::kPresent;
  }
  bool Copy(int64_t index) {
    std::memcpy(target_.data() + index * object_, source_.data() + index * object_, Size());
    benchmark::ClobberMemory();
    return true;
  }
  void Clear() { benchmark::DoNotOptimize(pool_->Clear(std::nullopt).ok()); }

 private:
  static std::vector<std::byte> Touched(int64_t size) {
    return std::vector<std::byte>(static_cast<size_t>(size), std::byte{1});
  }
  size_t Size() const { return static_cast<size_t>(object_); }
  ObjectKey Key(int64_t index) const { return MakeKey(space_, static_cast<uint64_t>(index)); }

  const int64_t object_;
  const int64_t count_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
  NamespaceId space_;
};

template <typename Body>
double Seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void CompareWithMemcpy(benchmark::State& state, bool (BytesWorld::*operation)(int64_t), bool is_put) {
  BytesWorld world(state.range(0), state.range(1));
  bool whole = true;
  const auto run = [&world, &whole](bool (BytesWorld::*body)(int64_t), int64_t first) {
    return Seconds([&] {
      for (int64_t i = 0; i < world.stride(); ++i) whole &= (world.*body)((first + i) % world.count());
    });
  };
  for (int64_t i = 0; !is_put && i < world.count(); ++i) world.Put(i);
  double pool_seconds = 0;
  double copy_seconds = 0;
  int64_t first = 0;
  for (auto _ : state) {
    if (is_put && first + world.stride() > world.count()) {
      world.Clear();
      first = 0;
    }
    const double seconds = run(operation, first);
    pool_seconds += seconds;
    copy_seconds += run(&BytesWorld::Copy, first + world.count() / 2);
    first += world.stride();
    state.SetIterationTime(seconds);
  }
  if (!whole) state.SkipWithError("an object was refused or missed");
  const double bytes = static_cast<double>(state.iterations() * world.stride() * state.range(1));
  state.counters["GB_per_s"] = bytes / pool_seconds * 1e-9;
  state.counters["memcpy_GB_per_s"] = bytes / copy_seconds * 1e-9;
  state.counters["share_of_memcpy"] = copy_seconds / pool_seconds;
}

void BM_PutBytes(benchmark::State& state) { CompareWithMemcpy(state, &BytesWorld::Put, true); }
void BM_GetBytes(benchmark::State& state) { CompareWithMemcpy(state, &BytesWorld::Get, false); }

// The second set lies in the caches; it is printed for comparison and has no limit.
void ByteSizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t object : {int64_t{4} << 10, int64_t{256} << 10, int64_t{4} << 20}) {
    bench->Args({int64_t{1} << 30, object});
  }
  bench->Args({int64_t{8} << 20, int64_t{256} << 10});
  bench->ArgNames({"set", "object"})->UseManualTime()->Iterations(96);
}
BENCHMARK(BM_PutBytes)->Apply(ByteSizes);
BENCHMARK(BM_GetBytes)->Apply(ByteSizes);

}  // namespace
}  // namespace tenure::store
