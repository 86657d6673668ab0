// Which workers of a prefill engine talk to which workers of a decode engine (pd_protocol spec §5:
// handshake_target_ranks, receive_kv, need_send).
//
// Tensor-parallel sizes have to divide one another. The side with fewer ranks meets several of the other, in one run.
// Pipeline ranks meet their equals when both sizes are equal; else every stage of D meets every stage of P, since
// either may hold layers of the other. Both sides compute this alone and come to the same pairs. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::pd {

inline constexpr int64_t kParallelSizeMax = 4096;  // Of either kind.

// Where a worker stands in its engine.
struct WorkerRank {
  int64_t tp_size = 1;
  int64_t tp_rank = 0;
  int64_t pp_size = 1;
  int64_t pp_rank = 0;

  friend bool operator==(const WorkerRank&, const WorkerRank&) = default;
};

// One worker of the other engine.
struct PeerRank {
  int64_t tp_rank = 0;
  int64_t pp_rank = 0;

  friend bool operator==(const PeerRank&, const PeerRank&) = default;
};

// InvalidArgument: a size outside of [1, kParallelSizeMax], a rank outside of its size.
absl::Status CheckWorkerRank(const WorkerRank& rank);
// InvalidArgument unless one of the two is a multiple of the other.
absl::Status CheckTpSizes(int64_t tp_size, int64_t remote_tp_size);

// The tensor ranks of the other side that `tp_rank` of `tp_size` meets, ascending; the same formula on both sides.
// InvalidArgument: sizes or a rank that cannot be, sizes that do not divide.
absl::StatusOr<std::vector<int64_t>> PairedTpRanks(int64_t tp_size, int64_t tp_rank, int64_t remote_tp_size);

// The prefill workers that a decode worker pulls from: by tensor rank, then pipeline rank. InvalidArgument as above.
absl::StatusOr<std::vector<PeerRank>> PrefillWorkersOf(const WorkerRank& decode, int64_t prefill_tp_size,
                                                       int64_t prefill_pp_size);

// Whether D's worker pulls from P's. InvalidArgument says which ranks P's worker serves.
absl::Status CheckPaired(const WorkerRank& prefill, const WorkerRank& decode);

// How many decode workers pull each request from this prefill worker before its blocks are free. InvalidArgument as
// above.
absl::StatusOr<int64_t> ConsumersNeeded(const WorkerRank& prefill, int64_t decode_tp_size, int64_t decode_pp_size);

}  // namespace tenure::pd
