#include "tenure/kv/hit.h"

#include <algorithm>

#include "tenure/base/check.h"
#include "tenure/kv/masks.h"

namespace tenure::kv {

std::vector<GroupHash> LoadSet(const CacheConfig& config, const Hit& hit) {
  std::vector<GroupHash> loads;
  if (hit.length <= Tokens()) return loads;
  TENURE_CHECK(hit.tails.size() == config.groups().size());
  for (size_t index = 0; index < hit.tails.size(); ++index) {
    const GroupIndex group(static_cast<int32_t>(index));
    const Tokens block = config.groups()[index].block_size;
    const ChunkRange range = LoadRange(config, group, hit.length);
    for (int64_t chunk = range.first; chunk < range.end; ++chunk) {
      const Tokens end = std::min(block * (chunk + 1), hit.length);
      const Tokens boundary = end == hit.length ? hit.tails[index] : end;
      loads.push_back({group, HashIndex(boundary / config.hash_block_size() - 1)});
    }
  }
  return loads;
}

}  // namespace tenure::kv
