// A prefill and a decode engine with all their workers in virtual time, over a network and a transport that misbehave.
//
// The production cores (Producer, Consumer, Renewer, RenewalSchedule, BootstrapRegistry) run in processes that stand
// still and are started again; the KV is real bytes. Faults come first; then they stop, and every request after that
// has to succeed. Checked all the time: no byte under another request, no block freed or used again while a write runs,
// no lease shortened, every request ends in its time and once, and in the end every block is free and every table
// empty. One run is decided by its options alone.
#pragma once

#include <cstdint>
#include <string>

namespace tenure::pd {

// A fault in the code around the cores, which the checks have to find.
enum class WorldCanary {
  kNone,
  kFreeWhenPrefilled,  // P frees its blocks at the end of a prefill.
  kFreeWhenFailing,    // D frees its blocks when it hears that the request will fail.
  kForgetFinished,     // P drops what its workers say has finished.
  kScanAhead,          // P's clock for leases is ahead.
};

struct WorldOptions {
  uint64_t seed = 1;
  int64_t prefill_tp = 1;
  int64_t decode_tp = 1;
  int64_t requests = 1000;
  WorldCanary canary = WorldCanary::kNone;
};

struct WorldReport {
  std::string violation;  // Empty: every check held.
  int64_t received = 0;   // Requests, as the rest up to `starts`.
  int64_t failed = 0;
  int64_t aborted = 0;  // By D.
  int64_t lost = 0;     // With D's engine.
  int64_t expired = 0;  // At a P worker.
  int64_t starts = 0;   // Of an engine, again.
  int64_t stalls = 0;
  int64_t writes = 0;
  int64_t failed_writes = 0;
  int64_t late_bytes = 0;      // Landed after their write had failed.
  int64_t message_faults = 0;  // Dropped, copied, delayed.
  int64_t late_pulls = 0;
  int64_t renewals = 0;
  uint64_t digest = 0;  // Of every event's time and outcome.
};

WorldReport RunWorld(const WorldOptions& options);

}  // namespace tenure::pd
