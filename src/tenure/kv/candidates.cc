#include "tenure/kv/candidates.h"

#include <algorithm>

#include "tenure/kv/masks.h"

namespace tenure::kv {

LookupCandidates::LookupCandidates(const CacheConfig& config, int64_t num_hashes, Tokens num_tokens)
    : config_(&config),
      num_hashes_(std::max<int64_t>(num_hashes, 0)),
      num_tokens_(num_tokens),
      token_length_(num_tokens.value() > 0 ? RoundDown(num_tokens, config.hit_alignment()) : Tokens()),
      hash_end_(std::min(num_hashes_, token_length_ / config.hash_block_size())) {}

bool LookupCandidates::Has(GroupHash key) const {
  const int64_t index = key.hash.value();
  if (index < 0 || index >= hash_end_) return false;
  if (config_->fine()) return true;
  const int64_t hashes_per_chunk = config_->HashesPerChunk(key.group);
  if ((index + 1) % hashes_per_chunk != 0) return false;
  return LookupMaskHas(*config_, key.group, index / hashes_per_chunk);
}

void LookupCandidates::AppendAll(std::vector<GroupHash>& out) const {
  for (size_t group = 0; group < config_->groups().size(); ++group) {
    const GroupIndex index(static_cast<int32_t>(group));
    const int64_t step = config_->fine() ? 1 : config_->HashesPerChunk(index);
    const bool all = config_->fine() || config_->groups()[group].kind == GroupKind::kFull;
    for (int64_t hash = step - 1; hash < hash_end_; hash += step) {
      if (all || LookupMaskHas(*config_, index, hash / step)) out.push_back({index, HashIndex(hash)});
    }
  }
}

}  // namespace tenure::kv
