#include "tenure/pd/head_cut.h"

#include <algorithm>
#include <string_view>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

absl::Status CheckHeads(int64_t heads, int64_t tp_size) {
  if (std::max(heads, tp_size) % std::min(heads, tp_size) == 0) return absl::OkStatus();
  return InvalidArgument(
      "{} KV heads on {} tensor parallel ranks; choose sizes that divide the heads or are a multiple", heads, tp_size);
}

std::string_view WhyNotCut(HeadSplit split) {
  return split == HeadSplit::kPaddedPage ? "its pages are padded" : "NVFP4 keeps its scales behind all heads";
}

}  // namespace

absl::StatusOr<HeadCut> HeadCut::Create(const WorkerRank& prefill, const WorkerRank& decode, const KvTraits& traits) {
  HeadCut cut;
  if (prefill.tp_size == decode.tp_size) return cut;
  cut.equal_sizes_ = false;
  const int64_t heads = traits.is_mla ? 1 : traits.total_kv_heads;
  TENURE_RETURN_IF_ERROR(CheckHeads(heads, prefill.tp_size));
  TENURE_RETURN_IF_ERROR(CheckHeads(heads, decode.tp_size));
  const auto held = [heads](const WorkerRank& rank) {
    return Heads{rank.tp_rank * heads / rank.tp_size, std::max<int64_t>(heads / rank.tp_size, 1)};
  };
  cut.prefill_ = held(prefill);
  cut.decode_ = held(decode);
  cut.whole_blocks_ = cut.prefill_.count == cut.decode_.count;
  // Ranks that hold the same heads stand side by side; so do the ranks of one decode rank, and both runs begin
  // together.
  const int64_t same_heads = std::max<int64_t>(prefill.tp_size / heads, 1);
  const int64_t same_decode_rank = std::max<int64_t>(prefill.tp_size / decode.tp_size, 1);
  cut.sends_ = prefill.tp_rank % std::min(same_heads, same_decode_rank) == 0;
  return cut;
}

absl::StatusOr<ByteCut> HeadCut::Cut(const KvRegion& prefill, const KvRegion& decode, bool is_state) const {
  if (is_state && !equal_sizes_) {
    return InvalidArgument(
        "layer {}: the recurrent states of different tensor parallel sizes do not fit one another; use the same size",
        LayerLabel(prefill.layer_name));
  }
  if (!whole_blocks_ && prefill.head_split != HeadSplit::kAllowed) {
    return InvalidArgument("layer {}: KV heads cannot be shared out anew, {}; use the same tensor parallel size",
                           LayerLabel(prefill.layer_name), WhyNotCut(prefill.head_split));
  }
  const int64_t head_bytes = prefill.kv_bytes / prefill_.count;
  const bool divides = head_bytes * prefill_.count == prefill.kv_bytes;
  if (!divides || decode.kv_bytes % decode_.count != 0 || decode.kv_bytes / decode_.count != head_bytes) {
    return InvalidArgument(
        "layer {}: a block has {} bytes for {} heads at P, {} bytes for {} heads at D; serve the same model with the "
        "same "
        "block size and data type",
        LayerLabel(prefill.layer_name), prefill.kv_bytes, prefill_.count, decode.kv_bytes, decode_.count);
  }
  const int64_t first = std::max(prefill_.first, decode_.first);
  const int64_t end = std::min(prefill_.first + prefill_.count, decode_.first + decode_.count);
  return ByteCut{static_cast<uint64_t>((first - prefill_.first) * head_bytes),
                 static_cast<uint64_t>((first - decode_.first) * head_bytes),
                 static_cast<uint64_t>((end - first) * head_bytes)};
}

}  // namespace tenure::pd
