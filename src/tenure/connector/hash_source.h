// The block hashes of one prompt, read one by one: a lookup builds keys only for what it asks, so a list that lives
// elsewhere (the engine's, in another language) is never converted whole.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/group_spec.h"

namespace tenure::connector {

// One thread at a time.
class HashSource {
 public:
  virtual ~HashSource() = default;
  // How many hashes the prompt has; the same for the length of a lookup.
  virtual int64_t size() const = 0;
  // hashes[i] = hash indices[i]; every index is below size(), both spans have one length. A failure makes the lookup a
  // miss.
  virtual absl::Status Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const = 0;
};

// Over hashes in memory, which outlive it.
class SpanHashSource final : public HashSource {
 public:
  explicit SpanHashSource(std::span<const kv::BlockHash> hashes) : hashes_(hashes) {}

  int64_t size() const override { return static_cast<int64_t>(hashes_.size()); }
  absl::Status Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const override {
    for (size_t i = 0; i < indices.size(); ++i) hashes[i] = hashes_[static_cast<size_t>(indices[i].value())];
    return absl::OkStatus();
  }

 private:
  std::span<const kv::BlockHash> hashes_;
};

}  // namespace tenure::connector
