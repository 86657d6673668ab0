// What a search has learnt, one byte per (group, hash): emptied in constant time, so that a search over a long prompt
// that asks for few keys costs little. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tenure/kv/group_spec.h"
#include "tenure/kv/presence.h"

namespace tenure::kv {

class PresenceTable {
 public:
  explicit PresenceTable(size_t num_groups) : groups_(num_groups) {}

  // Everything becomes kUnknown. Memory grows to the largest `num_hashes` and stays.
  void Reset(int64_t num_hashes) {
    // A cell of an earlier epoch reads as unknown; when epochs run out, all cells are wiped.
    if (++epoch_ > kEpochMax) {
      epoch_ = 1;
      for (auto& cells : groups_) std::fill(cells.begin(), cells.end(), uint8_t{0});
    }
    for (auto& cells : groups_) {
      if (cells.size() < static_cast<size_t>(num_hashes)) cells.resize(static_cast<size_t>(num_hashes));
    }
  }

  // Precondition of both: the hash index is below the num_hashes of the last Reset.
  Presence Get(GroupHash key) const {
    const uint8_t cell = Cells(key)[static_cast<size_t>(key.hash.value())];
    return (cell >> kPresenceBits) == epoch_ ? static_cast<Presence>(cell & kPresenceMask) : Presence::kUnknown;
  }
  void Set(GroupHash key, Presence presence) {
    groups_[static_cast<size_t>(key.group.value())][static_cast<size_t>(key.hash.value())] =
        static_cast<uint8_t>((epoch_ << kPresenceBits) | static_cast<unsigned>(presence));
  }

 private:
  static constexpr unsigned kPresenceBits = 2;
  static constexpr unsigned kPresenceMask = 3;
  static constexpr unsigned kEpochMax = 63;

  const std::vector<uint8_t>& Cells(GroupHash key) const { return groups_[static_cast<size_t>(key.group.value())]; }

  std::vector<std::vector<uint8_t>> groups_;
  unsigned epoch_ = 0;
};

}  // namespace tenure::kv
