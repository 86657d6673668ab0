// What P pays for a message before it acts on it, and for its leases on a step.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/renewal.h"

namespace tenure::pd {
namespace {

// 32 requests with 128 blocks each and a layout of 64 regions is about 18 kB.
std::string PullBytes(int64_t requests, int64_t blocks, int64_t regions) {
  Pull pull;
  pull.remote_hostname = "10.0.0.2";
  pull.remote_port = 15432;
  pull.remote_tp_size = 1;
  for (int64_t i = 0; i < requests; ++i) {
    PullRequest request = {fmt::format("cmpl-{:032}-0", i), fmt::format("xfer-{:036}", i), {{}}};
    for (int64_t block = 0; block < blocks; ++block) request.blocks[0].push_back(1000 * i + block);
    pull.requests.push_back(std::move(request));
  }
  for (int64_t i = 0; i < regions; ++i) {
    pull.kv_caches_base_addr.push_back(static_cast<uint64_t>(140'000'000'000'000 + (i << 30)));
    pull.block_lens.push_back(65'536);
    pull.kv_block_lens.push_back(65'536);
    pull.registered_layer_names.push_back(fmt::format("model.layers.{}.self_attn.attn", i));
    pull.registered_layer_indices.push_back(i);
    pull.registered_group_indices.push_back(0);
  }
  return *EncodePull(pull);
}

void BM_IsRenewal(benchmark::State& state, const std::string& message) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(message.data());
    benchmark::DoNotOptimize(IsRenewal(message));
  }
  state.counters["bytes"] = static_cast<double>(message.size());
}
BENCHMARK_CAPTURE(BM_IsRenewal, steady_pull, PullBytes(1, 16, 0));
BENCHMARK_CAPTURE(BM_IsRenewal, pull_with_layout, PullBytes(1, 16, 64));
BENCHMARK_CAPTURE(BM_IsRenewal, pull_of_32_requests, PullBytes(32, 128, 64));

void BM_DecodePull(benchmark::State& state, const std::string& message) {
  for (auto _ : state) benchmark::DoNotOptimize(DecodePull(message));
  state.counters["bytes"] = static_cast<double>(message.size());
}
BENCHMARK_CAPTURE(BM_DecodePull, steady_pull, PullBytes(1, 16, 0));
BENCHMARK_CAPTURE(BM_DecodePull, pull_with_layout, PullBytes(1, 16, 64));
BENCHMARK_CAPTURE(BM_DecodePull, pull_of_32_requests, PullBytes(32, 128, 64));

std::vector<std::string> TransferIds(int64_t count) {
  std::vector<std::string> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(fmt::format("xfer-{:036}", i));
  return ids;
}

HandoffLeases Held(const std::vector<std::string>& ids) {
  auto leases = *HandoffLeases::Create({.lease = absl::Seconds(30)});
  for (const std::string& id : ids) {
    (void)leases.Announce(id, id).ok();
    (void)leases.Finish(id, id, {{1}}, MonotonicTime()).ok();
  }
  return leases;
}

void BM_ScanNothingDue(benchmark::State& state) {
  HandoffLeases leases = Held(TransferIds(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(leases.Scan(MonotonicTime()));
}
BENCHMARK(BM_ScanNothingDue)->Arg(100'000)->Unit(benchmark::kMicrosecond);

void BM_Renew(benchmark::State& state) {
  const std::vector<std::string> ids = TransferIds(state.range(0));
  HandoffLeases leases = Held(ids);
  ManualClock clock;
  for (auto _ : state) {
    clock.Advance(absl::Seconds(5));
    benchmark::DoNotOptimize(leases.Renew(ids, clock.Now()));
  }
}
BENCHMARK(BM_Renew)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tenure::pd
