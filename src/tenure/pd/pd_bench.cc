// What P pays for a message's bytes, for its leases on a step, and what renewals cost both sides.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "tenure/base/check.h"
#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/sized_pull_testing.h"

namespace tenure::pd {
namespace {

void BM_DecodePull(benchmark::State& state, const PullSize& size) {
  const std::string message = EncodePull(MakeSizedPull(size).pull).value();
  for (auto _ : state) benchmark::DoNotOptimize(DecodePull(message));
  state.counters["bytes"] = static_cast<double>(message.size());
}
BENCHMARK_CAPTURE(BM_DecodePull, steady_pull, PullSize{});
BENCHMARK_CAPTURE(BM_DecodePull, pull_with_layout, PullSize{.regions = 64});
BENCHMARK_CAPTURE(BM_DecodePull, pull_of_32_requests, kPullOf32Requests);

std::vector<std::string> TransferIds(int64_t count) {
  std::vector<std::string> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(fmt::format("xfer-{:036}", i));
  return ids;
}

HandoffLeases Held(const std::vector<std::string>& ids) {
  HandoffLeases leases = HandoffLeases::Create({.lease = absl::Seconds(30)}).value();
  for (const std::string& id : ids) {
    TENURE_CHECK(leases.Announce(id, id).ok() && leases.Finish(id, id, {{1}}, MonotonicTime()).ok());
  }
  return leases;
}

void BM_ScanNothingDue(benchmark::State& state) {
  HandoffLeases leases = Held(TransferIds(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(leases.Scan(MonotonicTime()));
}
BENCHMARK(BM_ScanNothingDue)->Arg(100'000)->Unit(benchmark::kMicrosecond);

// After renewals in another order than that of the prefills, so that the deadlines do not rise from entry to entry.
void BM_ScanRenewed(benchmark::State& state) {
  const std::vector<std::string> ids = TransferIds(state.range(0));
  HandoffLeases leases = Held(ids);
  ManualClock clock;
  for (size_t i = 0; i < ids.size(); ++i) {
    clock.Advance(absl::Microseconds(200));
    const size_t place = i * 7919 % ids.size();
    TENURE_CHECK(leases.Renew(std::span(&ids[place], 1), clock.Now()).ok());
  }
  for (auto _ : state) benchmark::DoNotOptimize(leases.Scan(clock.Now()));
}
BENCHMARK(BM_ScanRenewed)->Arg(100'000)->Unit(benchmark::kMicrosecond);

// The messages of one round of renewals.
std::vector<Renewal> RenewalsOf(const std::vector<std::string>& ids) {
  std::vector<Renewal> renewals;
  for (size_t first = 0; first < ids.size(); first += kRenewalIdsPerMessage) {
    const size_t end = std::min(first + kRenewalIdsPerMessage, ids.size());
    renewals.push_back(
        {{ids.begin() + static_cast<ptrdiff_t>(first), ids.begin() + static_cast<ptrdiff_t>(end)}, 30.0});
  }
  return renewals;
}

void BM_EncodeRenewals(benchmark::State& state) {
  const std::vector<Renewal> renewals = RenewalsOf(TransferIds(state.range(0)));
  for (auto _ : state) {
    for (const Renewal& renewal : renewals) benchmark::DoNotOptimize(EncodeRenewal(renewal));
  }
}
BENCHMARK(BM_EncodeRenewals)->Arg(10'000)->Unit(benchmark::kMicrosecond);

void BM_DecodeRenewals(benchmark::State& state) {
  std::vector<std::string> messages;
  for (const Renewal& renewal : RenewalsOf(TransferIds(state.range(0)))) {
    messages.push_back(EncodeRenewal(renewal).value());
  }
  for (auto _ : state) {
    for (const std::string& message : messages) benchmark::DoNotOptimize(DecodeRenewal(message));
  }
}
BENCHMARK(BM_DecodeRenewals)->Arg(10'000)->Unit(benchmark::kMicrosecond);

void BM_ApplyRenewals(benchmark::State& state) {
  const std::vector<std::string> ids = TransferIds(state.range(0));
  const std::vector<Renewal> renewals = RenewalsOf(ids);
  HandoffLeases leases = Held(ids);
  ManualClock clock;
  for (auto _ : state) {
    clock.Advance(absl::Seconds(5));
    for (const Renewal& renewal : renewals) {
      benchmark::DoNotOptimize(leases.Renew(renewal.transfer_ids, clock.Now()));
    }
  }
}
BENCHMARK(BM_ApplyRenewals)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tenure::pd
