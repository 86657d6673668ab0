// What a prefill worker pays to turn an 18 kB pull of 32 requests into pieces.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "tenure/pd/pull_layout.h"
#include "tenure/pd/write_plan.h"

namespace tenure::pd {
namespace {

constexpr int64_t kRequests = 32;
constexpr int64_t kBlocks = 128;
constexpr int64_t kLayers = 64;

KvLayout Layout(uint64_t base, const WorkerRank& rank, int64_t block_bytes) {
  KvLayout layout = {rank, {}};
  for (int64_t i = 0; i < kLayers; ++i) {
    KvRegion region;
    region.layer_name = fmt::format("model.layers.{}.self_attn.attn", i);
    region.layer_index = i;
    region.base_addr = base + (static_cast<uint64_t>(i) << 32);
    region.block_bytes = block_bytes;
    region.kv_bytes = block_bytes;
    region.num_blocks = 60'000;
    layout.regions.push_back(region);
  }
  return layout;
}

// Block ids of one request in runs of `run`.
std::vector<int64_t> Ids(int64_t request, int64_t run) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kBlocks; ++i) ids.push_back(1 + request * kBlocks * 2 + i + i / run);
  return ids;
}

struct Peers {
  KvLayout prefill;
  KvTraits traits;
  Pull pull;
};

// `ratio` prefill ranks for one decode rank.
Peers MakePeers(int64_t run, int64_t ratio) {
  Peers peers;
  peers.traits = {.total_kv_heads = 8, .groups = {{}}};
  peers.prefill = Layout(0x7f0000000000, {.tp_size = ratio}, 65'536 / ratio);
  peers.pull.remote_hostname = "10.0.0.2";
  peers.pull.remote_port = 15432;
  WritePullLayout(Layout(0x7e0000000000, {}, 65'536), peers.pull);
  for (int64_t i = 0; i < kRequests; ++i) {
    peers.pull.requests.push_back({fmt::format("cmpl-{:032}-0", i), fmt::format("xfer-{:036}", i), {Ids(i, run)}});
  }
  return peers;
}

void BM_CreatePlan(benchmark::State& state) {
  const Peers peers = MakePeers(kBlocks, 1);
  for (auto _ : state) benchmark::DoNotOptimize(WritePlan::Create(peers.prefill, peers.traits, peers.pull));
}
BENCHMARK(BM_CreatePlan)->Unit(benchmark::kMicrosecond);

// From the message to the pieces, with the plan at hand as for every pull but a peer's first.
void BM_PullToPieces(benchmark::State& state, int64_t run, int64_t ratio) {
  const Peers peers = MakePeers(run, ratio);
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
BENCHMARK_CAPTURE(BM_PullToPieces, equal_tp_one_run, kBlocks, 1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PullToPieces, equal_tp_runs_of_8, 8, 1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PullToPieces, tp_2_to_1, kBlocks, 2)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tenure::pd
