// The daemon, in a process of its own, as its clients see it: index calls of 1, 100 and 10,000 keys, and bytes over a
// working set of 1 GiB against memcpy of the same blocks, measured alternately. With /threads:4 four clients share it,
// and memcpy runs in four threads too.
//
// Limits: a request of one key 30 us (median); put and get at 60 % of memcpy (counter `of_memcpy`), with one client and
// with four.
#include <benchmark/benchmark.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/clock.h"
#include "tenure/base/random.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/daemon/unix_address.h"
#include "tenure/daemon/wire_messages.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::ObjectKey;
using store::PutAnswer;

constexpr int64_t kWorkingSet = int64_t{1} << 30;
constexpr int64_t kIndexObjects = 1'000'000;
constexpr int64_t kIndexObjectBytes = 64;

// A daemon process with its folder; ends with this one.
class DaemonProcess {
 public:
  explicit DaemonProcess(const TestDaemonOptions& options)
      : path_(folder_.File("pool.sock")),
        process_([this, options](const TestProcess::Line& line) { return ServeInProcess(line, path_, options); }) {
    process_.Say();
    TENURE_CHECK(process_.Hear());
  }
  const std::string& path() const { return path_; }
  std::unique_ptr<DaemonPool> Client() const {
    DaemonPoolOptions options;
    options.socket_path = path_;
    options.call_deadline = absl::Seconds(60);
    return DaemonPool::Connect(options, clock_).value();
  }

 private:
  const TempFolder folder_;
  const std::string path_;
  const MonotonicClock clock_;
  TestProcess process_;
};

const DaemonProcess& IndexDaemon() {
  static const std::unique_ptr<DaemonProcess> daemon = [] {
    TestDaemonOptions options;
    options.capacity = Bytes(int64_t{512} << 20);
    options.slab_bytes = Bytes(int64_t{4} << 20);
    options.objects_max = kIndexObjects * 5 / 4;
    auto made = std::make_unique<DaemonProcess>(options);
    const std::unique_ptr<DaemonPool> pool = made->Client();
    const store::NamespaceId name_space = pool->OpenNamespace("bench").value();
    constexpr int64_t kBatch = 10'000;
    for (int64_t first = 0; first < kIndexObjects; first += kBatch) {
      std::vector<ObjectKey> keys;
      for (int64_t i = 0; i < kBatch; ++i) keys.push_back(TestKey(name_space, static_cast<uint64_t>(first + i)));
      for (const PutAnswer answer : PutAll(*pool, keys, kIndexObjectBytes, false))
        TENURE_CHECK(answer == PutAnswer::kStored);
    }
    return made;
  }();
  return *daemon;
}

// Keys of present objects, at random, in batches.
std::vector<std::vector<ObjectKey>> Batches(DaemonPool& pool, int64_t size, uint64_t seed) {
  const store::NamespaceId name_space = pool.OpenNamespace("bench").value();
  Random random(seed);
  std::vector<std::vector<ObjectKey>> batches(static_cast<size_t>(std::max<int64_t>(8, 100'000 / size)));
  for (auto& batch : batches) {
    for (int64_t i = 0; i < size; ++i) batch.push_back(TestKey(name_space, random.Below(kIndexObjects)));
  }
  return batches;
}

// The value that `share` of all are below.
double Quantile(std::vector<double>& values, double share) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(static_cast<double>(values.size() - 1) * share);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void ShowLatency(benchmark::State& state, std::vector<double>& microseconds) {
  state.counters["median_us"] = benchmark::Counter(Quantile(microseconds, 0.5), benchmark::Counter::kAvgThreads);
  state.counters["p99_us"] = benchmark::Counter(Quantile(microseconds, 0.99), benchmark::Counter::kAvgThreads);
}

template <typename Call>
void MeasureCalls(benchmark::State& state, Call call) {
  const std::unique_ptr<DaemonPool> pool = IndexDaemon().Client();
  const auto batches = Batches(*pool, state.range(0), static_cast<uint64_t>(state.thread_index()) + 1);
  std::vector<KeyAnswer> answers(static_cast<size_t>(state.range(0)));
  const MonotonicClock clock;
  std::vector<double> microseconds;
  size_t at = 0;
  for (auto _ : state) {
    const MonotonicTime start = clock.Now();
    call(*pool, batches[at++ % batches.size()], answers);
    microseconds.push_back(absl::ToDoubleMicroseconds(clock.Now() - start));
    TENURE_CHECK(answers[0] == KeyAnswer::kPresent);
  }
  ShowLatency(state, microseconds);
  state.counters["ns_per_key"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                                                    benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void Probe(benchmark::State& state) {
  MeasureCalls(state, [](DaemonPool& pool, const std::vector<ObjectKey>& keys, std::vector<KeyAnswer>& answers) {
    TENURE_CHECK(pool.Probe(keys, answers).ok());
  });
}
void LeaseAndRelease(benchmark::State& state) {
  MeasureCalls(state, [](DaemonPool& pool, const std::vector<ObjectKey>& keys, std::vector<KeyAnswer>& answers) {
    TENURE_CHECK(pool.AcquireLease(keys, absl::Seconds(10), answers).ok());
  });
}

// A client that asked for more than it reads and stands still with half a message sent.
class StalledClient {
 public:
  explicit StalledClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    const sockaddr_un address = UnixAddress(path).value();
    TENURE_CHECK(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    std::vector<std::byte> frames;
    AppendFrame(HelloRequest(), 1, frames);
    for (uint32_t i = 0; i < 30'000; ++i) AppendFrame(OpenNamespaceRequest{.prefix = "bench"}, i, frames);
    frames.resize(frames.size() - 3);
    TENURE_CHECK(send(socket_.get(), frames.data(), frames.size(), MSG_NOSIGNAL) > 0);
  }

 private:
  const FileDescriptor socket_;
};

// Limit: p99 at most twice that of Probe/1.
void ProbeBesideStalledClients(benchmark::State& state) {
  const StalledClient one(IndexDaemon().path());
  const StalledClient two(IndexDaemon().path());
  Probe(state);
}
BENCHMARK(ProbeBesideStalledClients)->Arg(1)->UseRealTime();
BENCHMARK(Probe)->Arg(1)->Arg(100)->Arg(10'000)->UseRealTime();
BENCHMARK(Probe)->Arg(1)->Threads(4)->UseRealTime()->Setup([](const benchmark::State&) { IndexDaemon(); });
BENCHMARK(LeaseAndRelease)->Arg(1)->Arg(100)->Arg(10'000)->UseRealTime();

const DaemonProcess& BytesDaemon() {
  static const std::unique_ptr<DaemonProcess> daemon = [] {
    TestDaemonOptions options;
    options.capacity = Bytes(kWorkingSet + (int64_t{256} << 20));
    options.slab_bytes = Bytes(int64_t{64} << 20);
    options.mode = store::PoolMode::kIndependent;
    options.objects_max = options.capacity.value() / 4096;
    return std::make_unique<DaemonProcess>(options);
  }();
  return *daemon;
}

// The client's side of a thread's share of the working set: blocks in one buffer, and another for memcpy.
class Blocks {
 public:
  Blocks(int64_t bytes, int64_t block)
      : block_(static_cast<size_t>(block)),
        count_(static_cast<size_t>(bytes / block)),
        from_(static_cast<size_t>(bytes), std::byte{1}),
        to_(static_cast<size_t>(bytes), std::byte{2}) {}
  size_t count() const { return count_; }
  std::byte* From(size_t at) { return from_.data() + at % count_ * block_; }
  std::byte* To(size_t at) { return to_.data() + at % count_ * block_; }
  void Memcpy(size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) std::memcpy(To(i), From(i), block_);
    benchmark::ClobberMemory();
  }

 private:
  const size_t block_;
  const size_t count_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
};

// Where the clients of one benchmark meet, so that all copy, or all call, at the same time.
class Meeting {
 public:
  static void Prepare(const benchmark::State& state) {
    place_ = state.threads() > 1 ? std::make_unique<std::barrier<>>(state.threads()) : nullptr;
  }
  // From when all are there until the last one is through with `work`.
  template <typename Work>
  static absl::Duration Time(const Work& work) {
    const MonotonicClock clock;
    if (place_ != nullptr) place_->arrive_and_wait();
    const MonotonicTime start = clock.Now();
    work();
    if (place_ != nullptr) place_->arrive_and_wait();
    return clock.Now() - start;
  }

 private:
  static std::unique_ptr<std::barrier<>> place_;
};
std::unique_ptr<std::barrier<>> Meeting::place_;

// Runs `call` on successive windows of the working set, a memcpy of the window before each. Of several clients it
// compares what they move together: on fewer processors each waits for the others, in the one case as in the other.
template <typename Call>
void MeasureBytes(benchmark::State& state, Blocks& blocks, Call call) {
  const auto batch = static_cast<size_t>(state.range(1));
  absl::Duration copying;
  absl::Duration calling;
  size_t at = 0;
  for (auto _ : state) {
    copying += Meeting::Time([&] { blocks.Memcpy(at, batch); });
    const absl::Duration took = Meeting::Time([&] { call(at, batch); });
    calling += took;
    state.SetIterationTime(absl::ToDoubleSeconds(took));
    at += batch;
  }
  const double bytes = static_cast<double>(state.iterations() * state.range(0) * state.range(1));
  state.counters["of_memcpy"] =
      benchmark::Counter(absl::FDivDuration(copying, calling), benchmark::Counter::kAvgThreads);
  state.counters["GB_per_s"] = benchmark::Counter(bytes / absl::ToDoubleSeconds(calling) / 1e9);
}

void Put(benchmark::State& state) {
  const std::unique_ptr<DaemonPool> pool = BytesDaemon().Client();
  Blocks blocks(kWorkingSet / state.threads(), state.range(0));
  const store::NamespaceId name_space = pool->OpenNamespace("put").value();
  static std::atomic<uint64_t> next_key{0};
  std::vector<std::array<store::ConstSegment, 1>> segments(static_cast<size_t>(state.range(1)));
  std::vector<store::PutObject> objects;
  std::vector<PutAnswer> answers(segments.size());
  MeasureBytes(state, blocks, [&](size_t first, size_t count) {
    objects.clear();
    for (size_t i = 0; i < count; ++i) {
      segments[i][0] = {.data = blocks.From(first + i), .size = static_cast<size_t>(state.range(0))};
      objects.push_back(
          {.key = TestKey(name_space, next_key.fetch_add(1)), .segments = segments[i], .parent = std::nullopt});
    }
    TENURE_CHECK(pool->Put(objects, answers).ok());
    TENURE_CHECK(answers[0] == PutAnswer::kStored);
  });
}

void Get(benchmark::State& state) {
  const std::unique_ptr<DaemonPool> pool = BytesDaemon().Client();
  Blocks blocks(kWorkingSet / state.threads(), state.range(0));
  const std::string prefix = "get" + std::to_string(state.range(0)) + "@" + std::to_string(state.thread_index());
  const store::NamespaceId name_space = pool->OpenNamespace(prefix).value();
  std::vector<store::PutObject> put;
  std::vector<std::array<store::ConstSegment, 1>> source(blocks.count());
  for (size_t i = 0; i < blocks.count(); ++i) {
    source[i][0] = {.data = blocks.From(i), .size = static_cast<size_t>(state.range(0))};
    put.push_back({.key = TestKey(name_space, i), .segments = source[i], .parent = std::nullopt});
  }
  std::vector<PutAnswer> stored(put.size());
  TENURE_CHECK(pool->Put(put, stored).ok());
  std::vector<std::array<store::Segment, 1>> segments(static_cast<size_t>(state.range(1)));
  std::vector<store::GetObject> objects;
  std::vector<KeyAnswer> answers(segments.size());
  int64_t present = 0;
  MeasureBytes(state, blocks, [&](size_t first, size_t count) {
    objects.clear();
    for (size_t i = 0; i < count; ++i) {
      segments[i][0] = {.data = blocks.To(first + i), .size = static_cast<size_t>(state.range(0))};
      objects.push_back({.key = put[(first + i) % put.size()].key, .segments = segments[i]});
    }
    TENURE_CHECK(pool->Get(objects, answers).ok());
    present += std::count(answers.begin(), answers.end(), KeyAnswer::kPresent);
  });
  state.counters["present"] =
      benchmark::Counter(static_cast<double>(present) / static_cast<double>(state.iterations() * state.range(1)),
                         benchmark::Counter::kAvgThreads);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({4 << 10, 1})->Args({4 << 10, 100})->Args({4 << 10, 10'000});
  bench->Args({256 << 10, 1})->Args({256 << 10, 100})->Args({4 << 20, 1})->Args({4 << 20, 10});
  bench->UseManualTime()->MinTime(1.0)->Setup(Meeting::Prepare);
}
void FourClients(benchmark::internal::Benchmark* bench) {
  bench->Args({256 << 10, 100})->Args({4 << 20, 10})->Threads(4)->UseManualTime()->MinTime(1.0);
  bench->Setup([](const benchmark::State& state) {
    BytesDaemon();  // A process ends with the thread that made it.
    Meeting::Prepare(state);
  });
}
BENCHMARK(Put)->Apply(Sizes);
BENCHMARK(Get)->Apply(Sizes);
BENCHMARK(Put)->Apply(FourClients);
BENCHMARK(Get)->Apply(FourClients);

}  // namespace
}  // namespace tenure::daemon
