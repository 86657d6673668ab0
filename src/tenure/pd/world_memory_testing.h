// The KV memory of one simulated engine: real bytes whose every word says what it should be, and a block allocator.
//
// A word belongs to a transfer, a layer, a block's place in the prompt and a head. Free blocks hold a mark, so a write
// that comes too late, and a read of what was freed too early, both show. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenure/pd/kv_layout.h"

namespace tenure::pd {

class WorldMemory {
 public:
  using Blocks = std::vector<int64_t>;

  // Blocks 1 to num_blocks - 1 can be had; block 0 is vLLM's null block.
  WorldMemory(int64_t tp_size, int64_t num_blocks);

  KvLayout Layout(int64_t tp_rank) const;
  size_t num_free() const { return free_.size(); }
  size_t num_blocks() const { return static_cast<size_t>(num_blocks_ - 1); }

  // What was done wrongly first, or empty.
  const std::string& problem() const { return problem_; }

  // The last freed first, so that a block is used again soon. None: not enough.
  std::optional<Blocks> Allocate(int64_t count);
  void Free(const Blocks& blocks);
  // `first`: the place in the prompt of the first of the blocks.
  void Fill(const Blocks& blocks, uint64_t transfer, int64_t first);
  bool Holds(const Blocks& blocks, uint64_t transfer, int64_t first) const;

  // A running write reads or writes these bytes; each call has its opposite.
  void BeginUse(uint64_t address, uint64_t size) { AddUses(address, size, 1); }
  void EndUse(uint64_t address, uint64_t size) { AddUses(address, size, -1); }

 private:
  template <typename Visit>
  void ForEachWord(const Blocks& blocks, Visit visit) const;
  size_t BlockAt(uint64_t address) const;
  void SetProblem(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  void AddUses(uint64_t address, uint64_t size, int count);

  int64_t tp_size_;
  int64_t num_blocks_;
  std::vector<std::vector<uint64_t>> words_;  // By rank.
  Blocks free_;
  std::vector<int> uses_;  // By block.
  std::string problem_;
};

}  // namespace tenure::pd
