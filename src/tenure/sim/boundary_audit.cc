#include "tenure/sim/boundary_audit.h"

#include <utility>
#include <variant>

#include "tenure/base/check.h"
#include "tenure/kv/hit_rule.h"

namespace tenure::sim {

static_assert(kv::CacheConfig::kGroupsMax <= 64, "Block::groups has a bit for each group");

class BoundaryAudit::PromptKnowledge final : public kv::Knowledge {
 public:
  PromptKnowledge(const BoundaryAudit& audit, std::span<const int64_t> block_ids)
      : audit_(audit), block_ids_(block_ids) {}

  kv::Presence Get(kv::GroupHash key) const override {
    const auto found = audit_.blocks_.find(block_ids_[static_cast<size_t>(key.hash.value())]);
    const bool kept = found != audit_.blocks_.end() && (found->second.groups >> key.group.value() & 1) != 0;
    return kept ? kv::Presence::kPresent : kv::Presence::kAbsent;
  }

 private:
  const BoundaryAudit& audit_;
  std::span<const int64_t> block_ids_;
};

Tokens BoundaryAudit::UnlimitedHit(std::span<const int64_t> block_ids, Tokens num_tokens) const {
  const PromptKnowledge knowledge(*this, block_ids);
  const auto result = kv::FindHit(config_, static_cast<int64_t>(block_ids.size()), num_tokens, knowledge);
  TENURE_CHECK(std::holds_alternative<kv::Hit>(result));  // Nothing is unknown here.
  return std::get<kv::Hit>(result).length;
}

void BoundaryAudit::Keep(int64_t block_id, kv::GroupIndex group) {
  blocks_[block_id].groups |= uint64_t{1} << group.value();
}

void BoundaryAudit::Saved(size_t store, int64_t block_id, kv::GroupIndex group, int64_t now_ms) {
  Block& block = blocks_[block_id];
  block.groups |= uint64_t{1} << group.value();
  block.last_saved_ms[store] = now_ms;
}

std::optional<int64_t> BoundaryAudit::LastSaved(size_t store, int64_t block_id) const {
  const auto found = blocks_.find(block_id);
  if (found == blocks_.end() || found->second.last_saved_ms[store] == kNever) return std::nullopt;
  return found->second.last_saved_ms[store];
}

Bytes BoundaryAudit::bytes() const {
  constexpr size_t kControlBytes = 1;  // A slot's byte of metadata.
  const size_t slot = sizeof(std::pair<const int64_t, Block>) + kControlBytes;
  return Bytes(static_cast<int64_t>(blocks_.capacity() * slot));
}

}  // namespace tenure::sim
