// Where the workers of prefill engines listen: what a bootstrap server is told and tells (pd_protocol spec §2).
//
// Values only; a shell turns them into HTTP and JSON. Beyond stock's fields a registration may carry the lease, the
// engine's incarnation and its expected sizes. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace tenure::pd {

// The body of POST /register.
struct WorkerRegistration {
  std::string engine_id;
  int64_t dp_rank = 0;
  int64_t tp_rank = 0;
  int64_t pp_rank = 0;
  std::string address;  // tcp://IP:PORT.
  // Additions, the same for all workers of an engine; absent from stock workers.
  std::optional<double> kv_lease_duration = std::nullopt;  // Seconds.
  std::optional<int64_t> incarnation = std::nullopt;       // Larger for each start of the engine.
  std::optional<int64_t> tp_size = std::nullopt;
  std::optional<int64_t> pp_size = std::nullopt;
};

// One entry of the answer to GET /query.
struct RegisteredEngine {
  std::string engine_id;
  std::map<int64_t, std::map<int64_t, std::string>> addresses;  // By tp rank, then pp rank.
  std::optional<double> kv_lease_duration;
  std::optional<int64_t> incarnation;
  std::optional<int64_t> tp_size;
  std::optional<int64_t> pp_size;

  // The engine said how many workers it has, and some are missing: to be asked again, and not to be kept (edge case
  // 23).
  bool IsPartial() const;

  friend bool operator==(const RegisteredEngine&, const RegisteredEngine&) = default;
};

class BootstrapRegistry {
 public:
  static constexpr int64_t kRanksMax = 65'536;   // Of each kind.
  static constexpr size_t kWorkersMax = 65'536;  // Of all engines.

  // The same worker at the same address again is no change. An engine with a larger incarnation, or with one where
  // there was none, takes the place of what its dp_rank had. InvalidArgument: another engine or another address for a
  // place that is taken, an incarnation that is past, workers of one engine that differ in lease or sizes, a field out
  // of its range. ResourceExhausted at kWorkersMax.
  absl::Status Register(const WorkerRegistration& worker);
  // By dp_rank.
  const std::map<int64_t, RegisteredEngine>& engines() const { return engines_; }

 private:
  std::map<int64_t, RegisteredEngine> engines_;
  size_t num_workers_ = 0;
};

}  // namespace tenure::pd
