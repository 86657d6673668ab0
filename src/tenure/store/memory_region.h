// Anonymous memory of this process: mapped once, at a fixed place, given back by the destructor.
//
// Untouched pages read as zero and cost nothing, so a region may be made for the largest case and fill up as it is
// used.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace tenure::store {

class MemoryRegion {
 public:
  enum class Touch { kNow, kOnUse };  // kNow takes every page at once, so that none is missing later.

  MemoryRegion() = default;
  // ResourceExhausted names `what` and the size. Asks for huge pages, since every use is random access or a long copy.
  static absl::StatusOr<MemoryRegion> Map(std::string_view what, size_t bytes, Touch touch);
  MemoryRegion(MemoryRegion&& other) noexcept { Swap(other); }
  MemoryRegion& operator=(MemoryRegion&& other) noexcept {
    MemoryRegion moved(std::move(other));
    Swap(moved);
    return *this;
  }
  ~MemoryRegion();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  MemoryRegion(std::byte* data, size_t size) : data_(data), size_(size) {}
  void Swap(MemoryRegion& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tenure::store
