#include "tenure/connector/key_batch.h"

#include <algorithm>

#include "tenure/base/status.h"

namespace tenure::connector {

absl::Status KeyBatch::Build(std::span<const kv::GroupHash> pairs, const HashSource& hashes) {
  indices_.clear();
  for (const kv::GroupHash& pair : pairs) indices_.push_back(pair.hash);
  hashes_.resize(pairs.size());
  keys_.clear();
  pair_end_.clear();
  TENURE_RETURN_IF_ERROR(hashes.Read(indices_, hashes_));
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (const kv::NamespaceId name_space : namespaces_[static_cast<size_t>(pairs[i].group.value())]) {
      keys_.push_back({name_space, hashes_[i]});
    }
    pair_end_.push_back(keys_.size());
  }
  if (keys_.size() > store::Pool::kBatchKeysMax) {
    return ResourceExhausted("{} keys in one call; a pool takes {}: shorten the prompt or use tail-first lookup",
                             keys_.size(), store::Pool::kBatchKeysMax);
  }
  return absl::OkStatus();
}

absl::Status KeyBatch::Probe(store::Pool& pool, std::span<kv::Presence> presence) {
  answers_.assign(keys_.size(), store::KeyAnswer::kUnavailable);
  TENURE_RETURN_IF_ERROR(pool.Probe(keys_, answers_));
  return Fold(presence);
}

absl::StatusOr<store::Lease> KeyBatch::AcquireLease(store::Pool& pool, absl::Duration ttl,
                                                    std::span<kv::Presence> presence) {
  answers_.assign(keys_.size(), store::KeyAnswer::kUnavailable);
  TENURE_ASSIGN_OR_RETURN(store::Lease lease, pool.AcquireLease(keys_, ttl, answers_));
  TENURE_RETURN_IF_ERROR(Fold(presence));
  return lease;
}

absl::Status KeyBatch::Fold(std::span<kv::Presence> presence) const {
  size_t key = 0;
  for (size_t i = 0; i < pair_end_.size(); ++i) {
    presence[i] = kv::Presence::kPresent;
    for (; key < pair_end_[i]; ++key) {
      if (answers_[key] == store::KeyAnswer::kPresent) continue;
      if (answers_[key] != store::KeyAnswer::kAbsent) {
        return Unavailable("the pool answered {} for key {} of {}", ToString(answers_[key]), key, keys_.size());
      }
      presence[i] = kv::Presence::kAbsent;
    }
  }
  return absl::OkStatus();
}

}  // namespace tenure::connector
