// Bytes as they arrive, until whole messages have been taken from the front. Keeps its memory, which is never cleared:
// zeroing room for a read costs more than the read. One thread at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace tenure::daemon {

class ReceiveBuffer {
 public:
  std::span<const std::byte> bytes() const { return std::span(memory_).subspan(begin_, end_ - begin_); }

  // Room for `size` bytes behind those that are there; `Filled` says how many of them came.
  std::span<std::byte> Room(size_t size) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (memory_.size() - end_ < size && begin_ > 0) {
      std::memmove(memory_.data(), memory_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (memory_.size() - end_ < size) memory_.resize(end_ + size);
    return std::span(memory_).subspan(end_, size);
  }
  void Filled(size_t size) { end_ += size; }

  void DropFront(size_t size) { begin_ += size; }
  void Clear() { begin_ = end_ = 0; }

 private:
  std::vector<std::byte> memory_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace tenure::daemon
