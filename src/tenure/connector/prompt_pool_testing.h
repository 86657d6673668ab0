// A fake pool that holds the objects of one prompt, by group, hash and rank. For tests; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/base/random.h"
#include "tenure/connector/key_batch.h"
#include "tenure/connector/lookup.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/coordinator_testing.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::connector::testing {

class PromptPool {
 public:
  // Every group has `ranks[g]` ranks; rank r of group g lies in a namespace of its own.
  PromptPool(const kv::CacheConfig& config, int64_t num_hashes, std::vector<int> ranks, bool closed);

  // Puts group g's objects of every rank there; on a closed pool with their parents, where those are there.
  void Insert(const kv::testing::PresenceSet& presence);
  // The same for one rank.
  void InsertRank(const kv::testing::PresenceSet& presence, int rank);

  LookupResult Find(const LookupOptions& options, int64_t num_tokens);
  // Made by the first Find with these options.
  Lookup& lookup() { return *lookup_; }

  store::FakePool& pool() { return pool_; }
  ManualClock& clock() { return clock_; }
  const GroupNamespaces& namespaces() const { return namespaces_; }
  const SpanHashSource& hashes() const { return source_; }
  store::ObjectKey Key(kv::GroupHash pair, int rank) const;
  std::vector<store::ObjectKey> Keys(kv::GroupHash pair) const;

  // Keys of the hit's load set, of every rank, that are not leased. On a closed pool the last chunk's lease stands for
  // its chain, whose chunks must be there.
  int64_t UnheldLoads(const kv::Hit& hit) const;
  // Pairs with a lease of their own on every rank.
  std::vector<kv::GroupHash> LeasedPairs() const;

 private:
  std::optional<store::ObjectKey> ParentOf(kv::GroupHash pair, int rank) const;

  const kv::CacheConfig& config_;
  ManualClock clock_;
  store::FakePool pool_;
  std::vector<kv::BlockHash> hashes_;
  SpanHashSource source_;
  GroupNamespaces namespaces_;
  std::optional<Lookup> lookup_;
};

}  // namespace tenure::connector::testing
