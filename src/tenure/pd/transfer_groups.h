// Which blocks of a request go over: the last ones of a sliding window, all of any other transfer group.
//
// Both engines clip by the same rule, so that their lists pair from the right. A window's blocks are those that it can
// touch: as many as it fills, and one more since it rarely begins with a block. Source: pd_protocol spec §4. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tenure::pd {

class TransferGroups {
 public:
  using Blocks = std::vector<std::vector<int64_t>>;
  struct Group {
    int64_t window_tokens = 0;  // 0: no sliding window.
    int64_t block_tokens = 1;   // At least 1.
  };

  explicit TransferGroups(std::vector<Group> groups) : groups_(std::move(groups)) {}

  size_t size() const { return groups_.size(); }
  // `blocks` has a list a group, or none at all, which stays so.
  Blocks Clip(Blocks blocks) const {
    for (size_t i = 0; i < blocks.size() && i < groups_.size(); ++i) {
      const Group& group = groups_[i];
      if (group.window_tokens == 0) continue;
      const auto keep = static_cast<size_t>((group.window_tokens - 1) / group.block_tokens + 2);
      std::vector<int64_t>& list = blocks[i];
      if (list.size() > keep) list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(keep));
    }
    return blocks;
  }

 private:
  std::vector<Group> groups_;
};

}  // namespace tenure::pd
