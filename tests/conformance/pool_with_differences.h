// A pool that keeps the contract but for the differences that a Mooncake store declares about leases, so that the
// suite's tests of stated differences have something to run on. Puts and reads are those of the pool beneath.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/store/pool.h"

namespace tenure::store::conformance {

// Rules 2 and 7: one TTL for all, no release. Rule 3: a get whose lease ran out is a miss. One thread at a time.
class PoolWithDifferences final : public Pool {
 public:
  PoolWithDifferences(std::unique_ptr<Pool> pool, const Clock& clock, absl::Duration ttl)
      : pool_(std::move(pool)), clock_(clock), ttl_(ttl), traits_(pool_->traits()) {
    traits_.differences = {Difference::kOneLeaseTtl, Difference::kNoPin};
  }

  const PoolTraits& traits() const override { return traits_; }
  absl::StatusOr<NamespaceId> OpenNamespace(std::string_view prefix) override { return pool_->OpenNamespace(prefix); }
  absl::Status Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override {
    return pool_->Probe(keys, answers);
  }
  absl::StatusOr<Lease> AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                     std::span<KeyAnswer> answers) override;
  absl::Status Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) override {
    return pool_->Put(objects, answers);
  }
  absl::Status Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) override;
  absl::Status Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override {
    return pool_->Remove(keys, answers);
  }
  absl::StatusOr<int64_t> Clear(std::optional<NamespaceId> name_space) override { return pool_->Clear(name_space); }
  PoolStats Stats() const override { return pool_->Stats(); }

 private:
  void ReleaseLease(std::span<const EntryRef>, MonotonicTime) override {}

  std::unique_ptr<Pool> pool_;
  const Clock& clock_;
  const absl::Duration ttl_;
  PoolTraits traits_;
  std::map<ObjectKey, MonotonicTime> leased_until_;
};

}  // namespace tenure::store::conformance
