#include "tenure/pd/world_testing.h"

#include <fmt/format.h>

namespace tenure::pd {

void World::Violated(const std::string& what) {
  if (!report.violation.empty()) return;
  report.violation = fmt::format("at {} s: {}", absl::ToDoubleSeconds(loop.now() - MonotonicTime()), what);
}

void World::Note(uint64_t what) {
  report.digest = Random::Mix(report.digest ^ what ^ static_cast<uint64_t>(loop.now().nanoseconds()));
}

void World::Carry(WorldProcess& to, const std::function<void()>& deliver) {
  // Messages overtake each other only while there are faults.
  const absl::Duration latency = absl::Microseconds(faulty ? random.Between(100, 5000) : 1000);
  if (!FaultyChance(0.01)) return loop.After(latency, to, deliver);
  ++report.message_faults;
  switch (random.Below(3)) {
    case 0:
      return;
    case 1:
      loop.After(latency, to, deliver);
      [[fallthrough]];
    default:
      loop.After(kWorldDelayMax * random.Fraction(), to, deliver);
  }
}

}  // namespace tenure::pd
