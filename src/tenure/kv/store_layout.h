// How a model's KV is cut over tensor-parallel ranks in the store: per rank, or in shards that engines of other widths
// can share.
//
// Pure functions. Source: store_connector spec §3 "Requested store TP"; vectors in §14.9.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tenure/kv/key_format.h"

namespace tenure::kv {

struct StoreTpOptions {
  bool use_lcm = false;                            // enable_store_tp_lcm
  std::span<const int64_t> prefill_tp_sizes = {};  // use_lcm only.
  std::optional<int64_t> store_tp_size = std::nullopt;
};
// The number of shards that the user asks for. Absent when not asked, and, as stock connectors have it, when what is
// asked is not usable: an empty list or a size below 1 (their least common multiple at most 2^31). use_lcm goes before
// store_tp_size.
std::optional<int64_t> RequestedStoreTp(const StoreTpOptions& options);

enum class StoreLayoutKind : uint8_t {
  kPlain,      // No store TP asked: rank-local keys, no namespace.
  kTpSharded,  // KeyRank.tp is a shard; any engine whose width divides the shards shares them.
  kSharedMqa,  // One KV head: every rank has the same bytes, so rank 0's are shared.
  kRankLocal,  // Asked but not possible: rank-local keys, kept apart by width and layout. The caller warns.
};

struct StoreLayoutOptions {
  std::optional<int64_t> store_tp;  // From RequestedStoreTp.
  Parallelism parallelism;
  std::string cache_layout;  // As the engine names it: "LBHNC", "LBNHC", ...
  int64_t num_store_groups = 1;
  bool exactly_full_attention = true;  // The one group is plain full attention, not MLA nor a derived kind.
  bool cross_layers_blocks = false;
  int64_t total_kv_heads = 1;
};

struct StoreLayout {
  StoreLayoutKind kind = StoreLayoutKind::kPlain;
  std::string store_namespace = {};  // For KeyNames.
  int64_t shards = 0;                // kTpSharded only: of the whole model.

  friend bool operator==(const StoreLayout&, const StoreLayout&) = default;
};
StoreLayout ResolveStoreLayout(const StoreLayoutOptions& options);

// kTpSharded: the shards [first, end) that a tensor-parallel rank owns.
struct ShardRange {
  int64_t first = 0;
  int64_t end = 0;

  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};
ShardRange ShardsOf(int64_t shards, int64_t tp_rank, int64_t tp_size);

}  // namespace tenure::kv
