// Replay speed: requests a second through parsing, and through lookup, audit, save and eviction.
#include <benchmark/benchmark.h>

#include <optional>
#include <string>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/sim/replay.h"
#include "tenure/sim/workload.h"

namespace tenure::sim {
namespace {

std::vector<TraceRequest> Requests() {
  AgenticOptions options;
  options.requests = 6000;
  auto workload = AgenticWorkload::Create(options).value();
  std::vector<TraceRequest> requests;
  TraceRequest request;
  while (workload->Next(request).value()) requests.push_back(request);
  return requests;
}

void BM_ParseTrace(benchmark::State& state) {
  std::string text;
  for (const TraceRequest& request : Requests()) AppendTraceLine(request, text);
  for (auto _ : state) {
    TraceReader reader("bench", MakeMemorySource(text), Tokens(512));
    TraceRequest request;
    while (reader.Next(request).value()) benchmark::DoNotOptimize(request);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text.size()));
}
BENCHMARK(BM_ParseTrace)->Unit(benchmark::kMillisecond);

// Argument: capacity in GiB, 0 for unlimited. Both lease modes, a hybrid model with states every 4,096 tokens.
void BM_ReplayAgentic(benchmark::State& state) {
  const std::vector<TraceRequest> requests = Requests();
  const MonotonicClock clock;
  ReplayOptions options{.model = LoadModel("kimi-linear-48b", Tokens(512)).value(),
                        .capacity = std::nullopt,
                        .pool = ReplayPool::kClosed,
                        .lease_modes = {connector::LeaseMode::kAll, connector::LeaseMode::kSelective},
                        .lookup = kv::SearchMode::kTailFirst,
                        .state_every = Tokens(4096),
                        .lease_ttl = absl::Seconds(10)};
  if (state.range(0) > 0) options.capacity = Bytes(state.range(0) << 30);
  for (auto _ : state) {
    auto replay = Replay::Create(options, clock).value();
    for (const TraceRequest& request : requests) TENURE_CHECK(replay->Feed(request).ok());
    benchmark::DoNotOptimize(replay->Report().modes.size());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(requests.size()));
}
BENCHMARK(BM_ReplayAgentic)->Arg(0)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tenure::sim
