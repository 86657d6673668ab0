#include "tenure/transfer/range_registry.h"

#include "tenure/base/status.h"

namespace tenure::transfer {

absl::Status RangeRegistry::Add(const std::vector<MemoryRange>& ranges) {
  const MutexLock lock(mutex_);
  std::vector<MemoryRange> all = state_->ranges;
  all.insert(all.end(), ranges.begin(), ranges.end());
  TENURE_ASSIGN_OR_RETURN(MemoryMap map, MemoryMap::Create("registering memory", all));
  state_ = std::make_shared<const RegisteredRanges>(RegisteredRanges{std::move(all), std::move(map)});
  return absl::OkStatus();
}

std::shared_ptr<const RegisteredRanges> RangeRegistry::Get() const {
  const MutexLock lock(mutex_);
  return state_;
}

std::vector<pd::MemoryKey> RangeRegistry::Keys() const {
  std::vector<pd::MemoryKey> keys;
  for (const auto& [address, size] : Get()->ranges) keys.push_back({address, size, ""});
  return keys;
}

}  // namespace tenure::transfer
