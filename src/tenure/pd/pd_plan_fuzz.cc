// Any pull against a prefill worker's layout: no crash; a refusal is one bounded line; every piece begins and ends in
// one of P's storages, is not empty, and does not pass the end of D's address space; a request that fails adds none.
//
// The first bytes choose P's layout. They also say whether the bytes behind them are a pull's or the input of one that
// fits P's layout up to a few changed fields, since random bytes would rarely get past the names.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/pull_layout.h"
#include "tenure/pd/write_plan.h"

namespace tenure::pd {
namespace {

constexpr uint64_t kBase = 0x100000;
constexpr int64_t kStorageBytes = 0x10000;
constexpr int64_t kBlocks = 24;

// Takes numbers off the input; 0 when it is empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  int64_t Below(int64_t bound) { return Byte() % bound; }
  // Small, or near the ends of the range.
  int64_t Any() {
    switch (Byte() % 8) {
      case 0:
        return INT64_MAX - Byte();
      case 1:
        return INT64_MIN + Byte();
      case 2:
        return -static_cast<int64_t>(Byte());
      case 3:
        return static_cast<int64_t>(Byte()) << (Byte() % 56);
      default:
        return Byte() % 32;
    }
  }
  bool empty() const { return left_.empty(); }
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

struct Prefill {
  KvLayout layout;
  KvTraits traits;
};

// Every layer has a storage of its own, or a place in the rows of the first.
Prefill ChoosePrefill(Input& input) {
  Prefill prefill;
  const int64_t sizes[] = {1, 2, 4, 8};
  prefill.layout.rank.tp_size = sizes[input.Below(4)];
  prefill.layout.rank.tp_rank = input.Below(prefill.layout.rank.tp_size);
  prefill.layout.rank.pp_size = 1 + input.Below(2);
  prefill.traits.total_kv_heads = 4;
  prefill.traits.is_mla = input.Below(3) == 0;
  const int64_t physical = 1 + input.Below(3);
  prefill.traits.groups = {{false, physical}, {false, physical}, {true, 1}};
  const bool rows = input.Below(2) == 0;
  const bool states = input.Below(4) == 0;  // Refused between different sizes.
  const int64_t payload = 48;
  for (int64_t i = 0; i < 6; ++i) {
    KvRegion& region = prefill.layout.regions.emplace_back();
    region.layer_name = std::string(1, static_cast<char>('a' + i / 2));
    region.layer_index = i / 2;
    region.group_index = i == 5 && states ? 2 : input.Below(2);
    if (i == 0 && input.Below(2) == 0) {
      region.group_index = kSharedGroup;
      region.shared_group_ids = {0, 1};
    }
    const bool in_row = rows && i < 4;
    region.row_offset = in_row ? i * 64 : kNoRow;
    region.base_addr = kBase + static_cast<uint64_t>(in_row ? i * 64 : i * kStorageBytes);
    region.block_bytes = in_row ? 256 : payload + input.Below(2) * 16;
    region.kv_bytes = payload;
    region.num_blocks = kBlocks * physical;
    region.head_split = input.Below(32) == 1 ? HeadSplit::kPaddedPage : HeadSplit::kAllowed;
  }
  return prefill;
}

// A pull of a decoder with the same layers, then some of its fields changed.
Pull ChoosePull(const Prefill& prefill, Input& input) {
  KvLayout decode = prefill.layout;
  const int64_t sizes[] = {1, 2, 4, 8};
  decode.rank.tp_size = sizes[input.Below(4)];
  decode.rank.tp_rank = prefill.layout.rank.tp_rank * decode.rank.tp_size / prefill.layout.rank.tp_size;
  const auto heads = [](int64_t tp_size) { return tp_size >= 4 ? 1 : 4 / tp_size; };
  for (KvRegion& region : decode.regions) {
    if (prefill.traits.is_mla) break;
    region.kv_bytes = region.kv_bytes / heads(prefill.layout.rank.tp_size) * heads(decode.rank.tp_size);
    if (region.row_offset == kNoRow) region.block_bytes = region.kv_bytes + input.Below(2) * 16;
  }
  Pull pull;
  WritePullLayout(decode, pull);
  for (int64_t changes = input.Below(4); changes > 0; --changes) {
    const size_t at = static_cast<size_t>(input.Below(6));
    switch (input.Below(8)) {
      case 0:
        pull.kv_caches_base_addr[at] = input.Below(4) == 0 ? static_cast<uint64_t>(input.Any())
                                                           : UINT64_MAX - 16 * static_cast<uint64_t>(input.Byte());
        break;
      case 1:
        pull.block_lens[at] = input.Any();
        break;
      case 2:
        pull.kv_block_lens[at] = input.Any();
        break;
      case 3:
        pull.registered_row_offsets[at] = input.Any();
        break;
      case 4:
        pull.registered_group_indices[at] = input.Any();
        break;
      case 5:
        pull.remote_pp_size = input.Any();
        break;
      case 6:
        pull.remote_tp_rank = input.Any();
        break;
      default:
        pull.registered_layer_names[at] = std::string(1, static_cast<char>(input.Byte()));
    }
  }
  for (int64_t requests = input.Below(4); requests > 0; --requests) {
    PullRequest& request = pull.requests.emplace_back();
    for (int64_t group = 0; group < 3; ++group) {
      for (auto& ids = request.blocks.emplace_back(); input.Below(4) != 0;) {
        ids.push_back(input.Below(8) == 0 ? input.Any() : input.Below(kBlocks));
      }
    }
  }
  return pull;
}

HandoffBlocks ChooseBlocks(Input& input) {
  HandoffBlocks blocks(3);
  for (std::vector<int64_t>& ids : blocks) {
    for (int64_t left = 1 + input.Below(12); left > 0; --left)
      ids.push_back(input.Below(16) == 0 ? input.Any() : input.Below(kBlocks));
  }
  return blocks;
}

bool InsideAStorage(const KvLayout& layout, const WritePiece& piece) {
  for (const KvRegion& region : layout.regions) {
    const uint64_t row = region.row_offset == kNoRow ? 0 : static_cast<uint64_t>(region.row_offset);
    const uint64_t begin = region.base_addr - row;
    const uint64_t rows = static_cast<uint64_t>(region.block_bytes * (region.num_blocks - 1));
    const uint64_t last = region.row_offset == kNoRow ? region.kv_bytes : region.block_bytes;
    if (piece.from >= begin && piece.from + piece.size <= begin + rows + last) return true;
  }
  return false;
}

void CheckError(const absl::Status& status) {
  const std::string_view text = Message(status);
  TENURE_CHECK(absl::IsInvalidArgument(status) && text.size() < 500 && text.find('\n') == text.npos);
}

void Run(Input input) {
  const bool decodes = input.Below(2) == 0;
  const Prefill prefill = ChoosePrefill(input);
  const HandoffBlocks blocks = ChooseBlocks(input);
  Pull pull;
  if (decodes) {
    auto decoded = DecodePull(input.left());
    if (!decoded.ok()) return;
    pull = *std::move(decoded);
  } else {
    pull = ChoosePull(prefill, input);
  }
  const auto plan = WritePlan::Create(prefill.layout, prefill.traits, pull);
  if (!plan.ok()) return CheckError(plan.status());
  TENURE_CHECK(plan->consumers_needed() >= 1);
  std::vector<WritePiece> pieces;
  for (const PullRequest& request : pull.requests) {
    const size_t before = pieces.size();
    const absl::Status status = plan->Append(blocks, request.blocks, pieces);
    if (!status.ok()) CheckError(status);
    TENURE_CHECK(status.ok() || pieces.size() == before);
  }
  if (pieces.empty()) return;
  // An address that went round the end of the address space would stand before all of D's regions.
  const auto& bases = pull.kv_caches_base_addr;
  const uint64_t lowest = *std::min_element(bases.begin(), bases.end());
  for (const WritePiece& piece : pieces) {
    TENURE_CHECK(piece.size > 0 && InsideAStorage(prefill.layout, piece));
    TENURE_CHECK(piece.to >= lowest && piece.to <= UINT64_MAX - piece.size);
  }
}

}  // namespace
}  // namespace tenure::pd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenure::pd::Run(tenure::pd::Input(data, size));
  return 0;
}
