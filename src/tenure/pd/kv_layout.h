// How one worker's KV cache lies in its memory: what P writes from, and what D describes in its pulls (pd_protocol spec
// §5, "Regions").
//
// A region is a run of blocks at one stride; a layer has one region, or several under the same name, told apart by
// their order. A block's bytes in a region are its payload, heads outside of tokens ("LBHNC"). Values; the owner keeps
// the memory registered for as long as it uses them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tenure/pd/tp_topology.h"

namespace tenure::pd {

inline constexpr size_t kRegionsMax = 65'536;
inline constexpr size_t kKvGroupsMax = 256;
inline constexpr int64_t kSharedGroup = -1;
inline constexpr int64_t kNoRow = -1;
inline constexpr int64_t kNullBlock = 0;  // vLLM's placeholder block.

// Whether a block's payload may be cut between heads.
enum class HeadSplit {
  kAllowed,
  kPaddedPage,   // The page is longer than its heads, so a rank's share is not a fraction of it.
  kBlockScales,  // NVFP4: the scales of all heads stand together behind the values.
};

struct KvRegion {
  std::string layer_name;
  int64_t layer_index = 0;
  int64_t group_index = 0;                // Into KvTraits::groups; kSharedGroup: the groups in `shared_group_ids`.
  std::vector<int64_t> shared_group_ids;  // For kSharedGroup, two or more; else empty, or the group alone.
  uint64_t base_addr = 0;                 // Of block 0's payload.
  int64_t block_bytes = 0;                // From a block to the next (wire: block_lens).
  int64_t kv_bytes = 0;                   // Payload of a block, at most `block_bytes` (wire: kv_block_lens).
  // From the start of the block's row to its payload, when the storage is a run of rows of `block_bytes` that several
  // layers share; the whole row then belongs to the block's group. kNoRow: no such storage.
  int64_t row_offset = kNoRow;

  // The rest is P's alone and not in a pull.
  int64_t num_blocks = 0;  // Kernel blocks in the storage: `physical_blocks` for each block of the scheduler.
  HeadSplit head_split = HeadSplit::kAllowed;
  bool hides_layers = false;  // The row is one region and has only its first layer's name.

  friend bool operator==(const KvRegion&, const KvRegion&) = default;
};

struct KvLayout {
  WorkerRank rank;
  std::vector<KvRegion> regions;  // In the order in which they were registered.

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// One transfer group: layers that share block ids.
struct KvGroup {
  bool is_state = false;        // Recurrent states: their block ids stay logical, null ids are placeholders.
  int64_t physical_blocks = 1;  // Kernel blocks of one block of the scheduler; 1 for states.
};

// What P knows of its model. D's has to be the same model.
struct KvTraits {
  int64_t total_kv_heads = 1;  // Of the whole model.
  bool is_mla = false;         // Every rank has the whole of a block, whatever the number of heads.
  std::vector<KvGroup> groups;
};

// The groups whose blocks a region holds; of D's shared regions P's list counts.
std::vector<int64_t> GroupsOf(const KvRegion& region);

// The checks of both sides: strides, payload and rows fit into one another and the address space, the group is there.
// InvalidArgument names the region.
absl::Status CheckKvRegion(const KvRegion& region, size_t num_groups);
// P's own layout, as its owner describes it. InvalidArgument for that, for no regions or groups, a region without
// blocks or whose blocks pass the end of the address space, shared groups that differ in `physical_blocks`.
absl::Status CheckKvLayout(const KvLayout& layout, const KvTraits& traits);

// A layer's name as messages show it, whoever chose it: printable ASCII, 80 bytes at most.
std::string LayerLabel(std::string_view layer_name);

}  // namespace tenure::pd
