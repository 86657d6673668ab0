#include "tenure/pd/sized_pull_testing.h"

#include <fmt/format.h>

#include "tenure/pd/pull_layout.h"

namespace tenure::pd {
namespace {

KvLayout Layout(uint64_t base, const WorkerRank& rank, int64_t block_bytes, int64_t regions) {
  KvLayout layout = {rank, {}};
  for (int64_t i = 0; i < regions; ++i) {
    KvRegion region;
    region.layer_name = fmt::format("model.layers.{}.self_attn.attn", i);
    region.layer_index = i;
    region.base_addr = base + (static_cast<uint64_t>(i) << 32);
    region.block_bytes = block_bytes;
    region.kv_bytes = block_bytes;
    region.num_blocks = 60'000;
    layout.regions.push_back(region);
  }
  return layout;
}

std::vector<int64_t> Ids(int64_t request, const PullSize& size) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < size.blocks; ++i) ids.push_back(1 + request * size.blocks * 2 + i + i / size.run);
  return ids;
}

}  // namespace

SizedPull MakeSizedPull(const PullSize& size) {
  SizedPull sized;
  sized.traits = {.total_kv_heads = 8, .groups = {{}}};
  sized.prefill = Layout(0x7f0000000000, {.tp_size = size.prefill_tp}, 65'536 / size.prefill_tp, size.regions);
  sized.pull.remote_hostname = "10.0.0.2";
  sized.pull.remote_port = 15432;
  WritePullLayout(Layout(0x7e0000000000, {}, 65'536, size.regions), sized.pull);
  for (int64_t i = 0; i < size.requests; ++i) {
    sized.pull.requests.push_back({fmt::format("cmpl-{:032}-0", i), fmt::format("xfer-{:036}", i), {Ids(i, size)}});
  }
  return sized;
}

}  // namespace tenure::pd
