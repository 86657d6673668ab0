#include "tenure/connector/prompt_pool_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tenure/base/check.h"

namespace tenure::connector::testing {
namespace {

std::vector<kv::BlockHash> MakeHashes(int64_t count) {
  std::vector<kv::BlockHash> hashes;
  for (int64_t i = 0; i < count; ++i) {
    std::array<uint8_t, 16> bytes{};
    for (size_t b = 0; b < 8; ++b)
      bytes[b] = static_cast<uint8_t>(Random::Mix(static_cast<uint64_t>(i) + 1) >> (8 * b));
    hashes.push_back(kv::BlockHash::FromTrusted(bytes));
  }
  return hashes;
}

}  // namespace

PromptPool::PromptPool(const kv::CacheConfig& config, int64_t num_hashes, std::vector<int> ranks, bool closed)
    : config_(config), pool_(clock_, closed), hashes_(MakeHashes(num_hashes)), source_(hashes_) {
  for (size_t group = 0; group < ranks.size(); ++group) {
    namespaces_.emplace_back();
    for (int rank = 0; rank < ranks[group]; ++rank) {
      auto name_space = pool_.OpenNamespace(fmt::format("group:{}@rank:{}", group, rank));
      TENURE_CHECK(name_space.ok());
      namespaces_.back().push_back(*name_space);
    }
  }
}

void PromptPool::Insert(const kv::testing::PresenceSet& presence) {
  int ranks_max = 0;
  for (const auto& ranks : namespaces_) ranks_max = std::max(ranks_max, static_cast<int>(ranks.size()));
  for (int rank = 0; rank < ranks_max; ++rank) InsertRank(presence, rank);
}

void PromptPool::InsertRank(const kv::testing::PresenceSet& presence, int rank) {
  // Full attention first, and ascending, so that parents come before children.
  for (const bool full : {true, false}) {
    for (size_t group = 0; group < namespaces_.size(); ++group) {
      const bool is_full = config_.groups()[group].kind == kv::GroupKind::kFull;
      if (is_full != full || static_cast<size_t>(rank) >= namespaces_[group].size()) continue;
      for (const int64_t hash : presence.groups[group]) {
        const kv::GroupHash pair{kv::GroupIndex(static_cast<int32_t>(group)), kv::HashIndex(hash)};
        pool_.Insert(Key(pair, rank), ParentOf(pair, rank));
      }
    }
  }
}

// The chunk before it in a chain; for other kinds the chunk of the first full group that covers the last token.
std::optional<store::ObjectKey> PromptPool::ParentOf(kv::GroupHash pair, int rank) const {
  if (!pool_.traits().closed) return std::nullopt;
  const kv::LookupUnit& unit = config_.UnitOf(pair.group);
  int64_t parent = -1;
  kv::GroupIndex group = pair.group;
  if (unit.spec.kind == kv::GroupKind::kFull) {
    parent = pair.hash.value() / unit.hashes_per_chunk * unit.hashes_per_chunk - 1;
  } else {
    for (size_t first = 0; first < config_.groups().size(); ++first) {
      if (config_.groups()[first].kind != kv::GroupKind::kFull) continue;
      group = kv::GroupIndex(static_cast<int32_t>(first));
      const int64_t per_chunk = config_.HashesPerChunk(group);
      parent = (pair.hash.value() / per_chunk + 1) * per_chunk - 1;
      break;
    }
  }
  if (parent < 0 || parent >= source_.size()) return std::nullopt;
  if (static_cast<size_t>(rank) >= namespaces_[static_cast<size_t>(group.value())].size()) return std::nullopt;
  const store::ObjectKey key = Key({group, kv::HashIndex(parent)}, rank);
  return pool_.Contains(key) ? std::optional(key) : std::nullopt;
}

LookupResult PromptPool::Find(const LookupOptions& options, int64_t num_tokens) {
  if (!lookup_) {
    auto lookup = Lookup::Create(config_, pool_, namespaces_, options);
    TENURE_CHECK(lookup.ok());
    lookup_.emplace(*std::move(lookup));
  }
  return lookup_->Find(source_, Tokens(num_tokens));
}

store::ObjectKey PromptPool::Key(kv::GroupHash pair, int rank) const {
  return {namespaces_[static_cast<size_t>(pair.group.value())][static_cast<size_t>(rank)],
          hashes_[static_cast<size_t>(pair.hash.value())]};
}

std::vector<store::ObjectKey> PromptPool::Keys(kv::GroupHash pair) const {
  std::vector<store::ObjectKey> keys;
  for (size_t rank = 0; rank < namespaces_[static_cast<size_t>(pair.group.value())].size(); ++rank) {
    keys.push_back(Key(pair, static_cast<int>(rank)));
  }
  return keys;
}

int64_t PromptPool::UnheldLoads(const kv::Hit& hit) const {
  const std::vector<kv::GroupHash> loads = kv::LoadSet(config_, hit);
  int64_t unheld = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const bool chain = config_.UnitOf(loads[i].group).spec.kind == kv::GroupKind::kFull;
    const bool last = i + 1 == loads.size() || loads[i + 1].group != loads[i].group;
    const bool by_descendant = pool_.traits().closed && chain && !last;
    for (const store::ObjectKey& key : Keys(loads[i])) {
      unheld += (by_descendant ? pool_.Contains(key) : pool_.IsLeased(key)) ? 0 : 1;
    }
  }
  return unheld;
}

std::vector<kv::GroupHash> PromptPool::LeasedPairs() const {
  std::vector<kv::GroupHash> pairs;
  for (size_t group = 0; group < namespaces_.size(); ++group) {
    for (int64_t hash = 0; hash < source_.size(); ++hash) {
      const kv::GroupHash pair{kv::GroupIndex(static_cast<int32_t>(group)), kv::HashIndex(hash)};
      bool leased = true;
      for (const store::ObjectKey& key : Keys(pair)) leased = leased && pool_.IsLeased(key);
      if (leased) pairs.push_back(pair);
    }
  }
  return pairs;
}

}  // namespace tenure::connector::testing
