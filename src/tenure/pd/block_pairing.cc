#include "tenure/pd/block_pairing.h"

#include <string_view>

#include "tenure/base/status.h"
#include "tenure/pd/kv_layout.h"

namespace tenure::pd {
namespace {

// Walks a list from its end, without the placeholders.
class Backwards {
 public:
  Backwards(std::span<const int64_t> ids, bool skips_null) : ids_(ids), skips_null_(skips_null) { SkipNull(); }
  bool done() const { return ids_.empty(); }
  int64_t id() const { return ids_.back(); }
  void Next() {
    ids_ = ids_.first(ids_.size() - 1);
    SkipNull();
  }
  size_t Count() const {
    size_t count = 0;
    for (Backwards left = *this; !left.done(); left.Next()) ++count;
    return count;
  }

 private:
  void SkipNull() {
    while (skips_null_ && !ids_.empty() && ids_.back() == kNullBlock) ids_ = ids_.first(ids_.size() - 1);
  }

  std::span<const int64_t> ids_;
  bool skips_null_;
};

absl::Status CheckId(std::string_view side, int64_t id, uint64_t limit) {
  if (id >= 0 && static_cast<uint64_t>(id) < limit) return absl::OkStatus();
  return InvalidArgument("{}'s block id {} is outside of its {} blocks; give ids of its own KV cache", side, id, limit);
}

}  // namespace

absl::Status PairBlocks(std::span<const int64_t> prefill, std::span<const int64_t> decode, bool is_state,
                        const BlockLimits& limits, std::vector<BlockRun>& runs) {
  runs.clear();
  const Backwards last_of_decode(decode, is_state);
  const Backwards last_of_prefill(prefill, is_state);
  std::vector<BlockRun> backwards;
  Backwards from = last_of_prefill;
  for (Backwards to = last_of_decode; !to.done(); to.Next(), from.Next()) {
    if (from.done()) {
      return InvalidArgument("P num blocks less than D: {} of P, {} asked for; pull what this prefill has computed",
                             last_of_prefill.Count(), last_of_decode.Count());
    }
    TENURE_RETURN_IF_ERROR(CheckId("P", from.id(), limits.from));
    TENURE_RETURN_IF_ERROR(CheckId("D", to.id(), limits.to));
    const BlockRun block = {static_cast<uint64_t>(from.id()), static_cast<uint64_t>(to.id()), 1};
    if (!backwards.empty() && backwards.back().from == block.from + 1 && backwards.back().to == block.to + 1) {
      backwards.back() = {block.from, block.to, backwards.back().count + 1};
    } else {
      backwards.push_back(block);
    }
  }
  runs.assign(backwards.rbegin(), backwards.rend());
  return absl::OkStatus();
}

}  // namespace tenure::pd
