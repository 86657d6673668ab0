// The message by which D asks P to write finished KV into D's blocks (pd_protocol spec §3: MooncakeXferMetadata).
//
// "remote" is D, as P sees it. The fields stand in the order of the wire. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/pd/transport_address.h"

namespace tenure::pd {

// One entry of `req_blocks`.
struct PullRequest {
  std::string request_id;   // D's; replies name it.
  std::string transfer_id;  // The only id that P and D share.
  // D's block ids of each transfer group. No group at all: a release-only pull, which frees P's blocks and moves
  // nothing.
  std::vector<std::vector<int64_t>> blocks;

  friend bool operator==(const PullRequest&, const PullRequest&) = default;
};

struct Pull {
  std::string remote_hostname;  // Of D's transfer engine, with its port.
  int64_t remote_port = 0;
  int64_t remote_tp_size = 0;
  int64_t remote_tp_rank = 0;
  std::vector<PullRequest> requests;          // In the sender's order; no request id comes twice.
  std::vector<uint64_t> kv_caches_base_addr;  // One a region, in D's process.
  std::vector<int64_t> block_lens;            // One a region: bytes from a block to the next.
  std::vector<int64_t> kv_block_lens;         // One a region: bytes of a block that are KV.
  std::vector<std::string> registered_layer_names;
  std::vector<int64_t> registered_layer_indices;
  std::vector<int64_t> registered_group_indices;  // -1: shared by the groups in registered_shared_group_ids.
  std::vector<std::vector<int64_t>> registered_shared_group_ids;
  std::vector<int64_t> registered_row_offsets;  // -1: no view into a packed row.
  int64_t remote_pp_size = 1;
  // Additions; stock peers skip them.
  std::optional<double> kv_lease_duration;  // D's own setting, seconds; absent: off, or a D that does not know it.
  std::optional<int64_t> remote_pp_rank;    // Tells D's pipeline ranks apart, so that a retry is not a second consumer.
  // How P reaches D's memory with Tenure's transports; the kind is empty for a D that has the Mooncake engine.
  TransportAddress transport;
  // How long from the sending on D waits for answers, seconds; P starts no write later. Absent: D does not say.
  std::optional<double> answer_within;

  friend bool operator==(const Pull&, const Pull&) = default;
};

inline constexpr size_t kPullRequestsMax = 65'536;
inline constexpr size_t kMemoryKeysMax = 4096;

// InvalidArgument for texts and lists beyond the maxima, a request id that comes twice, a bad lease and a bad
// answer_within.
absl::StatusOr<std::string> EncodePull(const Pull& pull);
// InvalidArgument for that and for what is malformed: a renewal among it, which lacks `remote_hostname`.
absl::StatusOr<Pull> DecodePull(std::string_view message);

}  // namespace tenure::pd
