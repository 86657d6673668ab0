#include "tenure/pd/copy_region.h"

namespace tenure::pd {

CopyRegion WholeRegion(const KvRegion& prefill, const KvRegion& decode) {
  CopyRegion region;
  region.groups = GroupsOf(prefill);
  region.from = prefill.base_addr;
  region.to = decode.base_addr;
  region.from_stride = static_cast<uint64_t>(prefill.block_bytes);
  region.to_stride = static_cast<uint64_t>(decode.block_bytes);
  region.size = static_cast<uint64_t>(prefill.kv_bytes);
  region.from_blocks = static_cast<uint64_t>(prefill.num_blocks);
  region.to_blocks = (UINT64_MAX - region.to) / region.to_stride;
  return region;
}

}  // namespace tenure::pd
