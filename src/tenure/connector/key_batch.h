// Turns (group, hash) pairs into the keys of every rank, asks a pool, and folds the answers back to one a pair.
//
// Scratch memory grows to the largest batch and is reused: nothing is allocated per key in steady state. One thread at
// a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/connector/hash_source.h"
#include "tenure/kv/group_spec.h"
#include "tenure/kv/object_key.h"
#include "tenure/kv/presence.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"

namespace tenure::connector {

// Per group the namespaces of its ranks, in the order that keys are asked.
using GroupNamespaces = std::vector<std::vector<kv::NamespaceId>>;

class KeyBatch {
 public:
  explicit KeyBatch(GroupNamespaces namespaces) : namespaces_(std::move(namespaces)) {}

  // Makes the keys of `pairs`, pair by pair, a pair's ranks in the order of its namespaces.
  absl::Status Build(std::span<const kv::GroupHash> pairs, const HashSource& hashes);
  // Of the last Build.
  std::span<const kv::ObjectKey> keys() const { return keys_; }

  // Asks the pool about the last Build's keys. presence[i] is kPresent if pair i is there on every rank. A pool that
  // did not answer for a key gives Unavailable.
  absl::Status Probe(store::Pool& pool, std::span<kv::Presence> presence);
  absl::StatusOr<store::Lease> AcquireLease(store::Pool& pool, absl::Duration ttl, std::span<kv::Presence> presence);

  size_t RanksOf(kv::GroupIndex group) const { return namespaces_[static_cast<size_t>(group.value())].size(); }

 private:
  absl::Status Fold(std::span<kv::Presence> presence) const;

  GroupNamespaces namespaces_;
  std::vector<kv::HashIndex> indices_;
  std::vector<kv::BlockHash> hashes_;
  std::vector<kv::ObjectKey> keys_;
  std::vector<store::KeyAnswer> answers_;
  std::vector<size_t> pair_end_;  // Where pair i's keys end.
};

}  // namespace tenure::connector
