#include "bindings/memory_registry.h"

#include <iterator>

#include "tenure/base/status.h"

namespace tenure::python {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 62;

absl::Status CheckRangeOfMemory(std::string_view what, uint64_t address, uint64_t size) {
  if (address == 0) return InvalidArgument("{} has the address 0; give the address of host memory", what);
  if (size == 0 || size > kBytesMax) return InvalidArgument("{} has {} bytes; use 1 to {}", what, size, kBytesMax);
  if (address + size < address) {
    return InvalidArgument("{} is {} bytes at {:#x}, past the end of the address space", what, size, address);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MemoryRegistry::Register(uint64_t address, uint64_t size) {
  TENURE_RETURN_IF_ERROR(CheckRangeOfMemory("buffer", address, size));
  MutexLock lock(mutex_);
  if (size_of_.size() >= kRangesMax) {
    return ResourceExhausted("{} buffers are registered, the most there can be; register whole storages", kRangesMax);
  }
  const auto next = size_of_.lower_bound(address);
  const bool meets_next = next != size_of_.end() && next->first < address + size;
  const bool meets_previous = next != size_of_.begin() && std::prev(next)->first + std::prev(next)->second > address;
  if (meets_next || meets_previous) {
    return InvalidArgument("buffer of {} bytes at {:#x} overlaps one that is registered; register each storage once",
                           size, address);
  }
  size_of_.emplace(address, size);
  return absl::OkStatus();
}

absl::Status MemoryRegistry::Unregister(uint64_t address) {
  MutexLock lock(mutex_);
  if (size_of_.erase(address) == 0) {
    return InvalidArgument("no buffer is registered at {:#x}; give the address that register_buffer got", address);
  }
  return absl::OkStatus();
}

absl::Status MemoryRegistry::Check(std::string_view what, uint64_t address, uint64_t size) const {
  TENURE_RETURN_IF_ERROR(CheckRangeOfMemory(what, address, size));
  MutexLock lock(mutex_);
  const auto next = size_of_.upper_bound(address);
  if (next != size_of_.begin()) {
    const auto& [first, length] = *std::prev(next);
    if (address + size <= first + length) return absl::OkStatus();
  }
  return InvalidArgument("{} is {} bytes at {:#x}, not inside a registered buffer; call register_buffer first", what,
                         size, address);
}

}  // namespace tenure::python
