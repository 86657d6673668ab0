#include "tenure/pd/pd_world_testing.h"

#include <array>
#include <map>
#include <memory>
#include <string>

#include "tenure/pd/world_decode_testing.h"
#include "tenure/pd/world_prefill_testing.h"
#include "tenure/pd/world_testing.h"

namespace tenure::pd {
namespace {

constexpr absl::Duration kCalm = absl::Seconds(300);  // All that was disturbed has ended by then.
constexpr absl::Duration kFaultEvery = absl::Seconds(20);
constexpr absl::Duration kBetweenStalls = absl::Seconds(60);  // Of one process, so that it is late once a message.

class PairRun {
 public:
  explicit PairRun(const WorldOptions& options)
      : world_(options),
        prefill_(
            world_, [this](const std::string& peer, const std::string& bytes) { decode_.Receive(peer, bytes); },
            [this](const Pull& pull) { return decode_.EndOf(pull); }),
        decode_(
            world_,
            [this](const std::string& address, const std::string& peer, const std::string& bytes) {
              return prefill_.Receive(address, peer, bytes);
            },
            [this](const std::string& address) { return prefill_.Listens(address); }) {}

  WorldReport Run() {
    const auto holds = [this] { return world_.report.violation.empty(); };
    ArriveLater(1);
    FaultLater();
    while (!all_arrived_ && holds()) world_.loop.Run(world_.loop.now() + kCalm, holds);
    world_.loop.Run(world_.loop.now() + kCalm, holds);
    if (holds()) {
      prefill_.ExpectIdle();
      decode_.ExpectIdle();
    }
    WorldReport& report = world_.report;
    report.writes = world_.writer.counts().writes;
    report.failed_writes = world_.writer.counts().failed;
    report.late_bytes = world_.writer.counts().late_bytes;
    return report;
  }

 private:
  void ArriveLater(uint64_t number) {
    const auto total = static_cast<uint64_t>(world_.options.requests);
    absl::Duration wait;  // Requests come in bursts.
    if (world_.random.Chance(0.3)) wait = absl::Seconds(world_.random.Exponential(0.8));
    if (number == total - total / 10) {
      world_.faulty = false;
      world_.writer.set_faulty(false);
      wait += kCalm;
    }
    world_.loop.After(wait, [this, number, total] {
      WorldRequest request;
      request.number = number;
      request.num_blocks = world_.random.Between(1, 4);
      request.first = world_.random.Chance(0.2) ? world_.random.Between(0, request.num_blocks - 1) : 0;
      request.must_succeed = !world_.faulty;
      prefill_.Arrive(request);
      decode_.Arrive(request);
      if (number < total) return ArriveLater(number + 1);
      all_arrived_ = true;
    });
  }

  void FaultLater() {
    world_.loop.After(kFaultEvery * world_.random.Exponential(1), [this] {
      if (!world_.faulty) return;
      Fault();
      FaultLater();
    });
  }

  void Fault() {
    const uint64_t kind = world_.random.Below(10);
    if (kind == 0 || kind == 1) {
      ++world_.report.starts;
      return kind == 0 ? prefill_.StartAgain() : decode_.StartAgain();
    }
    const bool of_prefill = kind < 6;
    const int64_t rank = of_prefill ? world_.random.Between(0, world_.options.prefill_tp - 1)
                                    : world_.random.Between(-1, world_.options.decode_tp - 1);
    const absl::Duration time = kWorldStallMax * world_.random.Fraction();
    MonotonicTime& calm_until = calm_until_[{of_prefill, rank}];
    if (calm_until > world_.loop.now()) return;
    calm_until = world_.loop.now() + time + kBetweenStalls;
    ++world_.report.stalls;
    of_prefill ? prefill_.Stall(rank, time) : decode_.Stall(rank, time);
  }

  World world_;
  WorldPrefill prefill_;
  WorldDecode decode_;
  bool all_arrived_ = false;
  std::map<std::pair<bool, int64_t>, MonotonicTime> calm_until_;
};

}  // namespace

WorldReport RunWorld(const WorldOptions& options) { return PairRun(options).Run(); }

}  // namespace tenure::pd
