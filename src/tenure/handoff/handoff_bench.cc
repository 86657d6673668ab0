// How long D waits for the news that it comes too late: from its order to the outcome, over real sockets.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/handoff/handoff_rig_testing.h"

namespace tenure::handoff {
namespace {

constexpr size_t kPulls = 201;
constexpr absl::Duration kLease = absl::Seconds(30);

// D's outcomes are looked for every millisecond, as an engine does on its steps; that is part of the time.
void BM_LatePull(benchmark::State& state) {
  ManualClock clock;
  transfer::MemoryNetwork network;
  const auto bootstrap = StartTestBootstrap();
  TestPrefill prefill(*bootstrap, network, clock, {.lease = kLease});
  TestDecode decode(network, clock, nullptr, {.lease = kLease});
  prefill.PrefillAndWait("late", {1}, 1);
  clock.Advance(kLease + absl::Seconds(1));
  TENURE_CHECK(prefill.WaitForFinished(1).size() == 1);
  const MonotonicClock real;
  std::vector<double> seconds;
  for (auto _ : state) {
    for (size_t i = 0; i < kPulls; ++i) {
      pd::PullOrder order = TestDecode::Order("late", BootstrapUrl(*bootstrap), {1});
      order.request_id += std::to_string(i);
      const MonotonicTime start = real.Now();
      decode.Pull({std::move(order)});
      TENURE_CHECK(decode.WaitForEnded(i + 1).failed.size() == i + 1);
      seconds.push_back(absl::ToDoubleSeconds(real.Now() - start));
    }
  }
  // The first asks the bootstrap server too.
  state.counters["first"] = seconds.front();
  std::sort(seconds.begin(), seconds.end());
  state.counters["median"] = seconds[kPulls / 2];
  state.counters["slowest_of_20"] = seconds[kPulls * 19 / 20];
}
BENCHMARK(BM_LatePull)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tenure::handoff
