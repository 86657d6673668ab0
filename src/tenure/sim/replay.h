// Replays a request log through the real lookup, lease, save and eviction on simulated pools, one pool for each lease
// mode, all fed the same requests in one pass.
//
// A request at its time of arrival: lookup with lease, then the save of what its prompt computes
// (connector/save_plan.h), then the pool's maintenance until nothing is due. Loading and computing take no time, and a
// lease is held until its TTL runs out. The pools are embedded pools of virtual memory under a manual clock, so a
// replay's figures depend on its input only (lookup time apart, which is measured). Memory grows with the objects held
// and the distinct blocks of the trace, never with the number of requests. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/connector/lookup.h"
#include "tenure/kv/hit_search.h"
#include "tenure/sim/histogram.h"
#include "tenure/sim/model_profile.h"
#include "tenure/sim/trace.h"
#include "tenure/store/pool.h"

namespace tenure::sim {

enum class ReplayPool : uint8_t {
  kClosed,
  kIndependent,
  kMooncake,  // Independent objects that leave in the order of Mooncake's lease deadlines.
};

struct ReplayOptions {
  ModelProfile model;
  std::optional<Bytes> capacity;  // Absent: unlimited.
  ReplayPool pool = ReplayPool::kClosed;
  std::vector<connector::LeaseMode> lease_modes;  // 1 or 2 different ones: a store and a column of the report each.
  kv::SearchMode lookup = kv::SearchMode::kTailFirst;
  Tokens state_every;  // 0: windows and states of the prompt's last boundary only; else a multiple of the scheduler
                       // block size too.
  absl::Duration lease_ttl = absl::Seconds(10);
};

// Lost tokens by the time since the lost boundary was last saved.
enum LostAge : size_t { kLostYoung, kLostMiddle, kLostOld, kLostAges };
inline constexpr absl::Duration kLostYoungEnd = absl::Minutes(2);
inline constexpr absl::Duration kLostMiddleEnd = absl::Minutes(10);

// Tokens that a prompt would have hit in an unlimited store and did not hit in this one.
struct MissAudit {
  int64_t never_saved = 0;                   // The boundary never got into this store: its puts were refused.
  std::array<int64_t, kLostAges> evicted{};  // It was there once.
  int64_t evicted_total() const { return evicted[kLostYoung] + evicted[kLostMiddle] + evicted[kLostOld]; }
  int64_t total() const { return never_saved + evicted_total(); }
};

// One store's account. Tokens: hit + lost = the trace's reusable tokens; hit + computed = its prompt tokens.
struct ModeReport {
  connector::LeaseMode lease = connector::LeaseMode::kSelective;
  int64_t hit_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t requests_without_hit = 0;
  int64_t requests_with_partial_hit = 0;
  int64_t requests_with_full_hit = 0;  // As long as any hit of the prompt can be.
  MissAudit lost;
  Histogram keys_probed;  // A lookup.
  Histogram keys_leased;  // A lookup: asked in its last lease round.
  Histogram lookup_nanoseconds;
  connector::LookupCounters lookups;
  int64_t puts_refused = 0;  // Objects that the pool did not keep.
  int64_t puts_skipped = 0;  // Not tried, since what they hang on was refused.
  store::PoolStats pool;
};

struct ReplayReport {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t reusable_tokens = 0;            // Hit tokens of an unlimited store.
  int64_t tail_not_cacheable_tokens = 0;  // Behind the prompts' last whole scheduler block.
  int64_t duration_ms = 0;                // From the first arrival to the last.
  int64_t distinct_blocks = 0;            // That were saved.
  Bytes audit_bytes;
  Bytes slab_bytes;
  std::vector<ModeReport> modes;
};

class Replay {
 public:
  // InvalidArgument names the option. `timer` measures lookups and outlives this.
  static absl::StatusOr<std::unique_ptr<Replay>> Create(ReplayOptions options, const Clock& timer);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Requests in order of arrival, as a RequestSource gives them for the model's hash block.
  absl::Status Feed(const TraceRequest& request);

  // Of what was fed so far.
  ReplayReport Report() const;

 private:
  class Core;
  explicit Replay(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tenure::sim
