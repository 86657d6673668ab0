#include "tenure/pd/tp_topology.h"

#include <algorithm>
#include <string_view>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

absl::Status CheckSize(std::string_view what, int64_t size) {
  if (size >= 1 && size <= kParallelSizeMax) return absl::OkStatus();
  return InvalidArgument("{} parallel size {}; use 1 to {}", what, size, kParallelSizeMax);
}

absl::Status CheckRank(std::string_view what, int64_t rank, int64_t size) {
  TENURE_RETURN_IF_ERROR(CheckSize(what, size));
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return InvalidArgument("{} parallel rank {}; with size {} use 0 to {}", what, rank, size, size - 1);
}

}  // namespace

absl::Status CheckWorkerRank(const WorkerRank& rank) {
  TENURE_RETURN_IF_ERROR(CheckRank("tensor", rank.tp_rank, rank.tp_size));
  return CheckRank("pipeline", rank.pp_rank, rank.pp_size);
}

absl::Status CheckTpSizes(int64_t tp_size, int64_t remote_tp_size) {
  TENURE_RETURN_IF_ERROR(CheckSize("tensor", tp_size));
  TENURE_RETURN_IF_ERROR(CheckSize("tensor", remote_tp_size));
  if (std::max(tp_size, remote_tp_size) % std::min(tp_size, remote_tp_size) == 0) return absl::OkStatus();
  return InvalidArgument("tensor parallel sizes {} and {} do not divide; choose a multiple of one for the other",
                         tp_size, remote_tp_size);
}

absl::StatusOr<std::vector<int64_t>> PairedTpRanks(int64_t tp_size, int64_t tp_rank, int64_t remote_tp_size) {
  TENURE_RETURN_IF_ERROR(CheckRank("tensor", tp_rank, tp_size));
  TENURE_RETURN_IF_ERROR(CheckTpSizes(tp_size, remote_tp_size));
  if (tp_size >= remote_tp_size) return std::vector<int64_t>{tp_rank / (tp_size / remote_tp_size)};
  const int64_t each = remote_tp_size / tp_size;
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < each; ++i) ranks.push_back(tp_rank * each + i);
  return ranks;
}

absl::StatusOr<std::vector<PeerRank>> PrefillWorkersOf(const WorkerRank& decode, int64_t prefill_tp_size,
                                                       int64_t prefill_pp_size) {
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(decode));
  TENURE_RETURN_IF_ERROR(CheckSize("pipeline", prefill_pp_size));
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> tp_ranks,
                          PairedTpRanks(decode.tp_size, decode.tp_rank, prefill_tp_size));
  std::vector<PeerRank> workers;
  for (const int64_t tp_rank : tp_ranks) {
    if (decode.pp_size == prefill_pp_size) {
      workers.push_back({tp_rank, decode.pp_rank});
      continue;
    }
    for (int64_t pp_rank = 0; pp_rank < prefill_pp_size; ++pp_rank) workers.push_back({tp_rank, pp_rank});
  }
  return workers;
}

absl::Status CheckPaired(const WorkerRank& prefill, const WorkerRank& decode) {
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(decode));
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> tp_ranks,
                          PairedTpRanks(prefill.tp_size, prefill.tp_rank, decode.tp_size));
  if (decode.tp_rank < tp_ranks.front() || decode.tp_rank > tp_ranks.back()) {
    return InvalidArgument(
        "D's tensor parallel rank {} of {} does not pair with P's rank {} of {}, which serves {} to {}; pull from the "
        "rank that serves it",
        decode.tp_rank, decode.tp_size, prefill.tp_rank, prefill.tp_size, tp_ranks.front(), tp_ranks.back());
  }
  if (prefill.pp_size == decode.pp_size && prefill.pp_rank != decode.pp_rank) {
    return InvalidArgument(
        "D's pipeline rank {} does not pair with P's rank {} of as many; pull from the stage with the same rank",
        decode.pp_rank, prefill.pp_rank);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ConsumersNeeded(const WorkerRank& prefill, int64_t decode_tp_size, int64_t decode_pp_size) {
  TENURE_RETURN_IF_ERROR(CheckWorkerRank(prefill));
  TENURE_RETURN_IF_ERROR(CheckSize("pipeline", decode_pp_size));
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> tp_ranks,
                          PairedTpRanks(prefill.tp_size, prefill.tp_rank, decode_tp_size));
  const int64_t stages = decode_pp_size == prefill.pp_size ? 1 : decode_pp_size;
  return static_cast<int64_t>(tp_ranks.size()) * stages;
}

}  // namespace tenure::pd
