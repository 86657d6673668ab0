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

void StagingBuffers::Keep(const void* buffer, absl::Duration time) {
  MutexLock lock(mutex_);
  kept_until_[buffer] = clock_.Now() + time;
}

absl::StatusOr<std::shared_ptr<std::byte>> StagingBuffers::Take() {
  MutexLock lock(mutex_);
  std::erase_if(kept_until_, [now = clock_.Now()](const auto& kept) { return kept.second <= now; });
  auto found = free_.begin();
  while (found != free_.end() && kept_until_.contains(*found)) ++found;
  if (found == free_.end()) {
    return Unavailable(
        "every staging buffer is held by a call that is not known to have ended; the store does not answer");
  }
  std::byte* const buffer = *found;
  free_.erase(found);
  return std::shared_ptr<std::byte>(buffer, [self = shared_from_this()](std::byte* used) {
    MutexLock relock(self->mutex_);
    self->free_.push_back(used);
  });
}

}  // namespace tenure::python
