// A pool that hands every call to another one: the base of pools that watch or disturb a few of the calls.
//
// Thread-safe as the pool behind it, which outlives it. Leases belong to that pool.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "tenure/store/pool.h"

namespace tenure::engine {

class ForwardingPool : public store::Pool {
 public:
  explicit ForwardingPool(store::Pool& pool) : pool_(pool) {}

  const store::PoolTraits& traits() const override { return pool_.traits(); }
  absl::StatusOr<store::NamespaceId> OpenNamespace(std::string_view prefix) override {
    return pool_.OpenNamespace(prefix);
  }
  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override {
    return pool_.Probe(keys, answers);
  }
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override {
    return pool_.AcquireLease(keys, ttl, answers);
  }
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override {
    return pool_.Put(objects, answers);
  }
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override {
    return pool_.Get(objects, answers);
  }
  absl::Status Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override {
    return pool_.Remove(keys, answers);
  }
  absl::StatusOr<int64_t> Clear(std::optional<store::NamespaceId> name_space) override {
    return pool_.Clear(name_space);
  }
  store::PoolStats Stats() const override { return pool_.Stats(); }

 protected:
  store::Pool& pool() { return pool_; }

 private:
  void ReleaseLease(std::span<const store::EntryRef> /*entries*/, MonotonicTime /*deadline*/) override {}

  store::Pool& pool_;
};

}  // namespace tenure::engine
