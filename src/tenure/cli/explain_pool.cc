#include "tenure/cli/explain_pool.h"

#include <array>

#include "tenure/base/status.h"

namespace tenure::cli {
namespace {

absl::Status ReadOnly() {
  return FailedPrecondition("an explained pool states what is present; it can only be looked up");
}

}  // namespace

absl::Status IndexHashSource::Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const {
  for (size_t i = 0; i < indices.size(); ++i) {
    std::array<uint8_t, 16> bytes{};
    for (size_t byte = 0; byte < 8; ++byte) {
      bytes[byte] = static_cast<uint8_t>(static_cast<uint64_t>(indices[i].value()) >> (8 * byte));
    }
    hashes[i] = kv::BlockHash::FromTrusted(bytes);
  }
  return absl::OkStatus();
}

ExplainPool::ExplainPool(const PresentBits& present, int64_t ranks) : present_(present), ranks_(ranks) {
  traits_.name = "explain";
  for (const std::vector<bool>& group : present) probed_.emplace_back(group.size() * static_cast<size_t>(ranks), false);
}

connector::GroupNamespaces ExplainPool::Namespaces() const {
  connector::GroupNamespaces namespaces(present_.size());
  uint32_t next = 0;
  for (std::vector<kv::NamespaceId>& group : namespaces) {
    for (int64_t rank = 0; rank < ranks_; ++rank) group.emplace_back(next++);
  }
  return namespaces;
}

std::optional<ExplainPool::Place> ExplainPool::Find(const store::ObjectKey& key) const {
  const auto ranks = static_cast<size_t>(ranks_);
  const Place place = {key.name_space.value() / ranks, key.name_space.value() % ranks, [&key] {
                         size_t hash = 0;
                         for (size_t byte = 8; byte-- > 0;) hash = hash << 8 | key.hash.bytes()[byte];
                         return hash;
                       }()};
  if (place.group >= present_.size() || place.hash >= present_[place.group].size()) return std::nullopt;
  return place;
}

absl::Status ExplainPool::Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::optional<Place> place = Find(keys[i]);
    answers[i] = place.has_value() && present_[place->group][place->hash] ? store::KeyAnswer::kPresent
                                                                          : store::KeyAnswer::kAbsent;
    if (!place.has_value()) continue;
    std::vector<bool>::reference probed =
        probed_[place->group][place->hash * static_cast<size_t>(ranks_) + place->rank];
    if (!probed) ++distinct_keys_probed_;
    probed = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<store::Lease> ExplainPool::AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration /*ttl*/,
                                                       std::span<store::KeyAnswer> answers) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::optional<Place> place = Find(keys[i]);
    answers[i] = place.has_value() && present_[place->group][place->hash] ? store::KeyAnswer::kPresent
                                                                          : store::KeyAnswer::kAbsent;
  }
  return store::Lease();  // Nothing here can be evicted, so nothing is held.
}

absl::StatusOr<store::NamespaceId> ExplainPool::OpenNamespace(std::string_view /*prefix*/) { return ReadOnly(); }
absl::Status ExplainPool::Put(std::span<const store::PutObject> /*objects*/, std::span<store::PutAnswer> /*answers*/) {
  return ReadOnly();
}
absl::Status ExplainPool::Get(std::span<const store::GetObject> /*objects*/, std::span<store::KeyAnswer> /*answers*/) {
  return ReadOnly();
}
absl::Status ExplainPool::Remove(std::span<const store::ObjectKey> /*keys*/, std::span<store::KeyAnswer> /*answers*/) {
  return ReadOnly();
}
absl::StatusOr<int64_t> ExplainPool::Clear(std::optional<store::NamespaceId> /*name_space*/) { return ReadOnly(); }

}  // namespace tenure::cli
