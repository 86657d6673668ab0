#include "tenure/kv/chunk_mask.h"

#include "tenure/base/check.h"

namespace tenure::kv {

std::string ChunkMask::ToString() const {
  TENURE_CHECK(!all_);
  std::string text(bits_.size(), '0');
  for (size_t i = 0; i < bits_.size(); ++i) {
    if (bits_[i]) text[i] = '1';
  }
  return text;
}

}  // namespace tenure::kv
