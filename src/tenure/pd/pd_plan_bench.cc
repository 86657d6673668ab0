// What a prefill worker pays to turn an 18 kB pull of 32 requests into pieces.
#include <benchmark/benchmark.h>

#include "tenure/pd/sized_pull_testing.h"
#include "tenure/pd/write_plan.h"

namespace tenure::pd {
namespace {

void BM_CreatePlan(benchmark::State& state) {
  const SizedPull peers = MakeSizedPull(kPullOf32Requests);
  for (auto _ : state) benchmark::DoNotOptimize(WritePlan::Create(peers.prefill, peers.traits, peers.pull));
}
BENCHMARK(BM_CreatePlan)->Unit(benchmark::kMicrosecond);

// From the message to the pieces, with the plan at hand as for every pull but a peer's first.
void BM_PullToPieces(benchmark::State& state, int64_t run, int64_t prefill_tp) {
  PullSize size = kPullOf32Requests;
  size.run = run;
  size.prefill_tp = prefill_tp;
  const SizedPull peers = MakeSizedPull(size);
  const std::string message = *EncodePull(peers.pull);
  const WritePlan plan = *WritePlan::Create(peers.prefill, peers.traits, peers.pull);
  size_t count = 0;
  for (auto _ : state) {
    const Pull pull = *DecodePull(message);
    std::vector<WritePiece> pieces;
    for (const PullRequest& request : pull.requests) {
      benchmark::DoNotOptimize(plan.Append(request.blocks, request.blocks, pieces).ok());
    }
    benchmark::DoNotOptimize(pieces.data());
    count = pieces.size();
  }
  state.counters["bytes"] = static_cast<double>(message.size());
  state.counters["pieces"] = static_cast<double>(count);
}
BENCHMARK_CAPTURE(BM_PullToPieces, equal_tp_one_run, 128, 1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PullToPieces, equal_tp_runs_of_8, 8, 1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PullToPieces, tp_2_to_1, 128, 2)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tenure::pd
