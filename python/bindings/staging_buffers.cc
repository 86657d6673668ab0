#include "bindings/staging_buffers.h"

#include <utility>

#include "tenure/base/status.h"

namespace tenure::python {

absl::StatusOr<std::shared_ptr<StagingBuffers>> StagingBuffers::Create(size_t count, size_t bytes) {
  TENURE_ASSIGN_OR_RETURN(
      store::MemoryRegion region,
      store::MemoryRegion::Map("staging_bytes of the Mooncake pool", count * bytes, store::MemoryRegion::Touch::kNow));
  return std::shared_ptr<StagingBuffers>(new StagingBuffers(std::move(region), count, bytes));
}

StagingBuffers::StagingBuffers(store::MemoryRegion region, size_t count, size_t bytes)
    : region_(std::move(region)), bytes_(bytes) {
  for (size_t i = 0; i < count; ++i) free_.push_back(region_.data() + i * bytes);
}

absl::StatusOr<std::shared_ptr<std::byte>> StagingBuffers::Take() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    return Unavailable("every staging buffer is held by a call that does not end; the store does not answer");
  }
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return std::shared_ptr<std::byte>(buffer, [self = shared_from_this()](std::byte* used) {
    MutexLock relock(self->mutex_);
    self->free_.push_back(used);
  });
}

}  // namespace tenure::python
