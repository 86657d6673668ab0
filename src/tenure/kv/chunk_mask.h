// A mask over the chunks of one group: all of them (a sentinel without memory), or one bit a chunk. A value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tenure::kv {

class ChunkMask {
 public:
  // Every chunk, however many there are.
  static ChunkMask All() { return ChunkMask(); }
  // `bits[i]` is chunk i, counted from the start that the mask was asked for.
  static ChunkMask Of(std::vector<bool> bits) {
    ChunkMask mask;
    mask.all_ = false;
    mask.bits_ = std::move(bits);
    return mask;
  }

  bool is_all() const { return all_; }
  // Precondition unless is_all(): 0 <= i < size().
  bool operator[](int64_t i) const { return all_ || bits_[static_cast<size_t>(i)]; }
  // Chunks of an explicit mask; 0 when is_all().
  int64_t size() const { return static_cast<int64_t>(bits_.size()); }
  // '0' and '1', chunk 0 first; precondition: not is_all().
  std::string ToString() const;

  friend bool operator==(const ChunkMask&, const ChunkMask&) = default;

 private:
  ChunkMask() = default;

  bool all_ = true;
  std::vector<bool> bits_;
};

}  // namespace tenure::kv
