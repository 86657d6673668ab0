#include "tests/conformance/pool_with_differences.h"

namespace tenure::store::conformance {

absl::StatusOr<Lease> PoolWithDifferences::AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                                        std::span<KeyAnswer> answers) {
  const bool valid = ttl > absl::ZeroDuration() && ttl <= kLeaseTtlMax;
  absl::StatusOr<Lease> lease = pool_->AcquireLease(keys, valid ? ttl_ : ttl, answers);
  if (!lease.ok()) return lease;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (answers[i] == KeyAnswer::kPresent) leased_until_[keys[i]] = clock_.Now() + ttl_;
  }
  const size_t held = lease->size();
  lease->Forget();
  return Lease(this, std::vector<EntryRef>(held), clock_.Now() + ttl_);
}

absl::Status PoolWithDifferences::Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) {
  const absl::Status status = pool_->Get(objects, answers);
  for (size_t i = 0; status.ok() && i < objects.size(); ++i) {
    const auto lease = leased_until_.find(objects[i].key);
    if (lease != leased_until_.end() && clock_.Now() >= lease->second) answers[i] = KeyAnswer::kAbsent;
  }
  return status;
}

}  // namespace tenure::store::conformance
