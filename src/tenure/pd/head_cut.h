// Which bytes of a block one prefill rank writes for one decode rank (pd_protocol spec §5, "Byte plan").
//
// A rank holds a run of KV heads, or one head that it shares with others when there are more ranks than heads; an MLA
// block is one head that every rank holds. What is written is the heads that both ranks hold. Where several prefill
// ranks of one decode rank hold the same heads, the first of them writes. The spec's cases all follow from that.
// Values; any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/pd/tp_topology.h"

namespace tenure::pd {

// Within the payload of a block: P's bytes [from, from + size) become D's [to, to + size).
struct ByteCut {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t size = 0;

  friend bool operator==(const ByteCut&, const ByteCut&) = default;
};

class HeadCut {
 public:
  // The ranks pair (CheckPaired). InvalidArgument: a number of heads that neither side's size divides nor is divided
  // by; of no account when both sizes are equal.
  static absl::StatusOr<HeadCut> Create(const WorkerRank& prefill, const WorkerRank& decode, const KvTraits& traits);

  // False: another rank writes these bytes.
  bool sends() const { return sends_; }
  // Both ranks hold the same heads, so that a block is written as it is.
  bool whole_blocks() const { return whole_blocks_; }
  // InvalidArgument: the lengths are not those of the ranks' heads, or the block cannot be cut there. States are never
  // cut: a rank's state is several arrays, each with its share, and no part of a larger rank's state.
  absl::StatusOr<ByteCut> Cut(const KvRegion& prefill, const KvRegion& decode, bool is_state) const;

 private:
  struct Heads {
    int64_t first = 0;
    int64_t count = 1;
  };

  HeadCut() = default;

  bool equal_sizes_ = true;
  bool sends_ = true;
  bool whole_blocks_ = true;
  Heads prefill_;
  Heads decode_;
};

}  // namespace tenure::pd
