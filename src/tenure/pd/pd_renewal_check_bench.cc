// What the renewable lease adds to a pull at P: the cost that the published change measured on each side-channel
// message of its prefiller (0.7, 1.3 and 21 us), where every message is decoded as a renewal first.
//
// That is the look at the first key, and the difference between a pull that carries its lease to a P that has one and
// the same pull without either, both from the bytes to the write's pieces. The two alternate, message by message, and
// the median of their differences counts, so that what else the machine does falls on both.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/pd/producer.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/sized_pull_testing.h"

namespace tenure::pd {
namespace {

constexpr int kMessages = 4001;
constexpr int kLooks = 1000;
constexpr absl::Duration kLease = absl::Seconds(30);

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// A prefill worker that is sent the same pull over and over.
class PulledProducer {
 public:
  PulledProducer(const PullSize& size, std::optional<absl::Duration> lease) {
    SizedPull sized = MakeSizedPull(size);
    producer_ = std::make_unique<Producer>(
        Producer::Create({.handoff = {.lease = lease}}, sized.prefill, sized.traits).value());
    if (lease) sized.pull.kv_lease_duration = absl::ToDoubleSeconds(*lease);
    message_ = EncodePull(sized.pull).value();
    for (const PullRequest& request : sized.pull.requests) {
      orders_.announced.push_back({"p-" + request.request_id, request.transfer_id});
      orders_.finished.push_back({"p-" + request.request_id, request.transfer_id, request.blocks});
    }
  }
  const std::string& message() const { return message_; }

  // Seconds from the bytes to the pieces.
  double Serve() {
    const MonotonicTime now = clock_.Now();
    producer_->RecordStep(orders_, now);
    const std::string peer = fmt::format("peer{}", peers_++);
    const MonotonicTime start = clock_.Now();
    ProducerActions actions = producer_->OnMessage(peer, message_, now);
    const double seconds = absl::ToDoubleSeconds(clock_.Now() - start);
    TENURE_CHECK(actions.writes.size() == 1 && actions.replies.empty());
    TENURE_CHECK(producer_->OnWriteDone(actions.writes[0].id, {absl::OkStatus(), true}, now).finished_requests.size() ==
                 orders_.finished.size());
    return seconds;
  }

 private:
  const MonotonicClock clock_;
  std::unique_ptr<Producer> producer_;
  std::string message_;
  StepOrders orders_;
  int64_t peers_ = 0;
};

double SecondsToLook(const std::string& message) {
  const MonotonicClock clock;
  const MonotonicTime start = clock.Now();
  for (int i = 0; i < kLooks; ++i) {
    benchmark::DoNotOptimize(message.data());
    benchmark::DoNotOptimize(IsRenewal(message));
  }
  return absl::ToDoubleSeconds(clock.Now() - start) / kLooks;
}

void BM_RenewalCheck(benchmark::State& state, const PullSize& size) {
  PulledProducer with(size, kLease);
  PulledProducer without(size, std::nullopt);
  std::vector<double> looks;
  std::vector<double> added;
  std::vector<double> served;
  for (auto _ : state) {
    for (int i = 0; i < kMessages; ++i) {
      // Each is the first of its pair as often as the other.
      const double early = i % 2 == 0 ? with.Serve() : without.Serve();
      const double late = i % 2 == 0 ? without.Serve() : with.Serve();
      added.push_back(i % 2 == 0 ? early - late : late - early);
      served.push_back(i % 2 == 0 ? early : late);
      if (i % 100 == 0) looks.push_back(SecondsToLook(with.message()));
    }
  }
  const double look = Median(looks);
  state.counters["bytes"] = static_cast<double>(with.message().size());
  state.counters["look"] = look;
  state.counters["check"] = look + std::max(0.0, Median(added));
  state.counters["served"] = Median(served);
}
BENCHMARK_CAPTURE(BM_RenewalCheck, steady_pull, PullSize{})->Iterations(1);
BENCHMARK_CAPTURE(BM_RenewalCheck, pull_with_layout, PullSize{.regions = 64})->Iterations(1);
BENCHMARK_CAPTURE(BM_RenewalCheck, pull_of_32_requests, kPullOf32Requests)->Iterations(1);

}  // namespace
}  // namespace tenure::pd
