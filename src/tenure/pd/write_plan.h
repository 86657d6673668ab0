// What a prefill worker writes for one decode worker: from the two layouts, once a peer; then, for each request, from
// its blocks to pieces (pd_protocol spec §5, "Byte plan", "Alignment", "Block pairing").
//
// Every number of a pull is a peer's input. A plan checks them all, so that a piece never leaves P's regions nor passes
// the end of D's address space; that D's addresses are D's KV is D's word, and its transport's to enforce. Immutable;
// Append may run on several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/pd/block_pairing.h"
#include "tenure/pd/copy_region.h"
#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/write_piece.h"

namespace tenure::pd {

// Of one batch: 400 MB. A million tokens of an 80-layer model, no two blocks adjacent, are 5 M.
inline constexpr size_t kWritePiecesMax = 16'777'216;

class WritePlan {
 public:
  // `pull` gives D's ranks and layout; its requests are not read. Stock peers leave out their pipeline rank, which is
  // then taken as the right one. InvalidArgument, always about the whole pull: ranks
  // that do not pair, layers that do not match, lengths that are not those of the two TP sizes, a layout whose heads
  // cannot be cut where they would have to be.
  static absl::StatusOr<WritePlan> Create(const KvLayout& prefill, const KvTraits& traits, const Pull& pull);

  // Decode workers that pull each request from this worker before its blocks are free.
  int64_t consumers_needed() const { return consumers_needed_; }
  // False: another rank writes the same bytes, or D has none of P's layers. This worker waits and acknowledges only.
  bool sends() const { return !regions_.empty(); }
  // Regions after neighbours were joined.
  size_t num_regions() const { return regions_.size(); }

  // Adds the pieces that bring one request's blocks to D: block lists by group, D's the end of P's. Nothing to write is
  // fine: a release-only pull, a D with all blocks. On an error nothing is added, and only this request has failed.
  // InvalidArgument: other groups than P has, fewer blocks on P than D asks for, an id outside of P's regions or of D's
  // address space. ResourceExhausted: above kWritePiecesMax pieces.
  absl::Status Append(const HandoffBlocks& prefill_blocks, const std::vector<std::vector<int64_t>>& decode_blocks,
                      std::vector<WritePiece>& pieces) const;

 private:
  // What bounds a group's block ids: its regions that are written.
  struct Group {
    bool is_state = false;
    uint64_t physical_blocks = 1;
    BlockLimits limits;
  };

  WritePlan() = default;
  void Bound(const CopyRegion& region);
  size_t CountPieces(const std::vector<std::vector<BlockRun>>& runs) const;
  void AppendRegion(const CopyRegion& region, const std::vector<std::vector<BlockRun>>& runs,
                    std::vector<WritePiece>& pieces) const;

  int64_t consumers_needed_ = 0;
  std::vector<Group> groups_;
  std::vector<CopyRegion> regions_;
};

}  // namespace tenure::pd
