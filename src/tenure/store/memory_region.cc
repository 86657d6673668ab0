#include "tenure/store/memory_region.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tenure/base/status.h"

namespace tenure::store {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

absl::StatusOr<MemoryRegion> MemoryRegion::Map(std::string_view what, size_t bytes, Touch touch) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return ResourceExhausted("no memory for {}: mapping {} bytes failed ({}); make the pool smaller", what, bytes,
                             std::strerror(errno));
  }
  std::byte* data = static_cast<std::byte*>(address);
  madvise(address, bytes, MADV_HUGEPAGE);  // Only a wish: without it the region works with small pages.
  if (touch == Touch::kNow) {
    for (size_t offset = 0; offset < bytes; offset += kPageBytes) data[offset] = std::byte{0};
  }
  return MemoryRegion(data, bytes);
}

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace tenure::store
