// A read-only pool over the presence that a request of `tenure explain` states: it holds no objects, only answers.
//
// Independent objects; every rank has what one has. Counts the distinct keys it was probed for. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tenure/cli/explain_request.h"
#include "tenure/connector/hash_source.h"
#include "tenure/connector/key_batch.h"
#include "tenure/store/pool.h"

namespace tenure::cli {

// Hashes that are their own index: prompts of a request have no tokens to hash.
class IndexHashSource final : public connector::HashSource {
 public:
  explicit IndexHashSource(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  absl::Status Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const override;

 private:
  int64_t size_;
};

class ExplainPool final : public store::Pool {
 public:
  // `present` outlives it; `ranks` at least 1.
  ExplainPool(const PresentBits& present, int64_t ranks);

  connector::GroupNamespaces Namespaces() const;
  int64_t distinct_keys_probed() const { return distinct_keys_probed_; }

  const store::PoolTraits& traits() const override { return traits_; }
  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override;
  store::PoolStats Stats() const override { return {}; }

  // What changes a pool or reads bytes is refused.
  absl::StatusOr<store::NamespaceId> OpenNamespace(std::string_view prefix) override;
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override;
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override;
  absl::Status Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<int64_t> Clear(std::optional<store::NamespaceId> name_space) override;

 private:
  struct Place {
    size_t group;
    size_t rank;
    size_t hash;
  };
  // Its leases hold nothing.
  void ReleaseLease(std::span<const store::EntryRef> /*entries*/, MonotonicTime /*deadline*/) override {}
  std::optional<Place> Find(const store::ObjectKey& key) const;

  const PresentBits& present_;
  int64_t ranks_;
  store::PoolTraits traits_;
  std::vector<std::vector<bool>> probed_;  // Per group, one bit a hash and rank.
  int64_t distinct_keys_probed_ = 0;
};

}  // namespace tenure::cli
