#include "tenure/pd/tiny_model_testing.h"

#include <fmt/format.h>

#include <utility>

#include "tenure/pd/pull_layout.h"

namespace tenure::pd {
namespace {

int64_t BlockBytes(const WorkerRank& rank) { return kTinyHeads / rank.tp_size * kTinyHeadBytes; }

}  // namespace

KvTraits TinyTraits() {
  KvTraits traits;
  traits.total_kv_heads = kTinyHeads;
  traits.groups.resize(1);
  return traits;
}

KvLayout TinyLayout(const WorkerRank& rank, uint64_t base, int64_t num_blocks) {
  KvLayout layout;
  layout.rank = rank;
  for (int64_t layer = 0; layer < kTinyLayers; ++layer) {
    KvRegion region;
    region.layer_name = fmt::format("layer.{}", layer);
    region.layer_index = layer;
    region.block_bytes = BlockBytes(rank);
    region.kv_bytes = BlockBytes(rank);
    region.num_blocks = num_blocks;
    region.base_addr = base + static_cast<uint64_t>(layer * num_blocks * BlockBytes(rank));
    layout.regions.push_back(std::move(region));
  }
  return layout;
}

int64_t TinyBytes(const WorkerRank& rank, int64_t num_blocks) { return kTinyLayers * num_blocks * BlockBytes(rank); }

Pull TinyPull(const KvLayout& decode, std::string host, std::optional<double> lease) {
  Pull pull;
  WritePullLayout(decode, pull);
  pull.remote_hostname = std::move(host);
  pull.remote_port = 1;
  pull.remote_pp_rank = decode.rank.pp_rank;
  pull.kv_lease_duration = lease;
  return pull;
}

}  // namespace tenure::pd
