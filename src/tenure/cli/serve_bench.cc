// A lookup with its lease on the daemon, as an engine's scheduler makes it: prompts of 100k and 1M tokens at block 16,
// full attention, all of it present in a closed pool. Limits: 300 us at 100k tokens, and less than twice that at 1M.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/clock.h"
#include "tenure/connector/lookup.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/kv/random_hashes_testing.h"

namespace tenure::cli {
namespace {

constexpr int64_t kBlock = 16;
constexpr int64_t kPutBatch = 1000;

void StoreChain(store::Pool& pool, store::NamespaceId name_space, const std::vector<kv::BlockHash>& hashes) {
  const std::array<std::byte, 1> byte{};
  const std::array<store::ConstSegment, 1> segments = {{{.data = byte.data(), .size = 1}}};
  for (size_t first = 0; first < hashes.size(); first += kPutBatch) {
    std::vector<store::PutObject> objects;
    for (size_t i = first; i < std::min(hashes.size(), first + kPutBatch); ++i) {
      objects.push_back({.key = {.name_space = name_space, .hash = hashes[i]},
                         .segments = segments,
                         .parent = i > 0 ? std::optional(store::ObjectKey{name_space, hashes[i - 1]}) : std::nullopt,
                         .kind = store::ObjectKind::kFull});
    }
    std::vector<store::PutAnswer> answers(objects.size());
    TENURE_CHECK(pool.Put(objects, answers).ok() && answers.back() == store::PutAnswer::kStored);
  }
}

void LookupOnDaemon(benchmark::State& state) {
  const int64_t chunks = state.range(0) / kBlock;
  const daemon::TempFolder folder;
  const std::string path = folder.File("pool.sock");
  daemon::TestDaemonOptions options;
  options.capacity = Bytes(int64_t{64} << 20);
  options.objects_max = chunks * 2 + 4096;
  daemon::TestProcess daemon(
      [&](const daemon::TestProcess::Line& line) { return daemon::ServeInProcess(line, path, options); });
  daemon.Say();
  TENURE_CHECK(daemon.Hear());
  const MonotonicClock clock;
  daemon::DaemonPoolOptions client;
  client.socket_path = path;
  const std::unique_ptr<daemon::DaemonPool> pool = daemon::DaemonPool::Connect(client, clock).value();
  const store::NamespaceId name_space = pool->OpenNamespace("bench").value();
  const std::vector<kv::BlockHash> hashes = kv::RandomHashes(chunks);
  StoreChain(*pool, name_space, hashes);

  kv::CacheConfig::Options model;
  model.hash_block_size = model.scheduler_block_size = Tokens(kBlock);
  model.groups = {kv::GroupSpec()};
  model.groups[0].block_size = Tokens(kBlock);
  const kv::CacheConfig config = kv::CacheConfig::Create(model).value();
  connector::Lookup lookup = connector::Lookup::Create(config, *pool, {{name_space}}, {}).value();
  const connector::SpanHashSource source(hashes);
  std::vector<double> microseconds;
  for (auto _ : state) {
    const MonotonicTime start = clock.Now();
    const connector::LookupResult result = lookup.Find(source, Tokens(chunks * kBlock + 1));
    microseconds.push_back(absl::ToDoubleMicroseconds(clock.Now() - start));
    TENURE_CHECK(result.hit.length == Tokens(chunks * kBlock));
  }
  std::nth_element(microseconds.begin(), microseconds.begin() + static_cast<ptrdiff_t>(microseconds.size() / 2),
                   microseconds.end());
  state.counters["median_us"] = microseconds[microseconds.size() / 2];
}
BENCHMARK(LookupOnDaemon)->Arg(100'000)->Arg(1'000'000)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tenure::cli
