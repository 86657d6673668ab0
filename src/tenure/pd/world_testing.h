// What the parts of the simulated pair share: time, chance, the network, the times that bound everything.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tenure/base/random.h"
#include "tenure/pd/bootstrap_registry.h"
#include "tenure/pd/pd_world_testing.h"
#include "tenure/pd/world_events_testing.h"
#include "tenure/pd/world_writer_testing.h"

namespace tenure::pd {

// How long things may take here. A write lands at most kStallMax + 2 kDelayMax + 10 s after D stops to wait for it.
inline constexpr absl::Duration kWorldLease = absl::Seconds(30);
inline constexpr absl::Duration kWorldHold = absl::Seconds(100);
inline constexpr absl::Duration kWorldPatience = absl::Seconds(120);  // Of D, from a request's arrival.
inline constexpr absl::Duration kWorldLateWrite = absl::Seconds(60);
inline constexpr absl::Duration kWorldStallMax = absl::Seconds(35);
inline constexpr absl::Duration kWorldDelayMax = absl::Seconds(3);

struct WorldRequest {
  uint64_t number = 0;
  int64_t num_blocks = 1;
  int64_t first = 0;  // D has the blocks before this one.
  bool must_succeed = false;
  std::string transfer_id() const { return "x" + std::to_string(number); }
  std::string prefill_id() const { return "p" + std::to_string(number); }
  std::string decode_id() const { return "d" + std::to_string(number); }
};

// What all parts of a world share.
struct World {
  explicit World(const WorldOptions& world_options)
      : options(world_options), random(world_options.seed), writer(loop, random) {}

  void Violated(const std::string& what);
  // Into the digest.
  void Note(uint64_t what);
  // Carries a message: once, or not at all, or twice, soon or late.
  void Carry(WorldProcess& to, const std::function<void()>& deliver);
  bool FaultyChance(double probability) { return faulty && random.Chance(probability); }
  absl::Duration Milliseconds(int64_t low, int64_t high) { return absl::Milliseconds(random.Between(low, high)); }

  WorldOptions options;
  WorldReport report;
  EventLoop loop;
  Random random;
  WorldWriter writer;
  BootstrapRegistry registry;
  bool faulty = true;
};

}  // namespace tenure::pd
