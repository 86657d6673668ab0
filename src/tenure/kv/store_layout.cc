#include "tenure/kv/store_layout.h"

#include <fmt/format.h>

#include <numeric>

namespace tenure::kv {
namespace {

constexpr int64_t kStoreTpMax = int64_t{1} << 31;

// All that sharding needs but the division of the heads.
bool CanShare(const StoreLayoutOptions& options) {
  const Parallelism& parallelism = options.parallelism;
  const int64_t shards = *options.store_tp;
  return shards >= parallelism.tp_size && shards % parallelism.tp_size == 0 &&
         (options.cache_layout == "LBHNC" || options.cache_layout == "LBNHC") && parallelism.pcp_size == 1 &&
         parallelism.dcp_size == 1 && options.num_store_groups == 1 && options.exactly_full_attention &&
         !options.cross_layers_blocks;
}

}  // namespace

std::optional<int64_t> RequestedStoreTp(const StoreTpOptions& options) {
  if (!options.use_lcm) return options.store_tp_size.value_or(0) >= 1 ? options.store_tp_size : std::nullopt;
  if (options.prefill_tp_sizes.empty()) return std::nullopt;
  int64_t multiple = 1;
  for (const int64_t size : options.prefill_tp_sizes) {
    if (size < 1 || size > kStoreTpMax) return std::nullopt;
    multiple = std::lcm(multiple, size);
    if (multiple > kStoreTpMax) return std::nullopt;
  }
  return multiple;
}

StoreLayout ResolveStoreLayout(const StoreLayoutOptions& options) {
  if (!options.store_tp.has_value()) return {};
  const Parallelism& parallelism = options.parallelism;
  if (!CanShare(options) || (options.total_kv_heads % *options.store_tp != 0 && options.total_kv_heads != 1)) {
    return {StoreLayoutKind::kRankLocal, fmt::format("@store_pp:{}@store_format:rank_local_tp{}_layout_{}",
                                                     parallelism.pp_size, parallelism.tp_size, options.cache_layout)};
  }
  if (options.total_kv_heads % *options.store_tp != 0) {
    return {StoreLayoutKind::kSharedMqa, fmt::format("@store_pp:{}@store_format:tp_shared_mqa", parallelism.pp_size)};
  }
  const char* format = options.cache_layout == "LBHNC" ? "tp_shared_lbhnc" : "tp_shared_lbnhc";
  return {StoreLayoutKind::kTpSharded,
          fmt::format("@store_tp:{}@store_pp:{}@store_format:{}", *options.store_tp, parallelism.pp_size, format),
          *options.store_tp};
}

ShardRange ShardsOf(int64_t shards, int64_t tp_rank, int64_t tp_size) {
  return {tp_rank * shards / tp_size, (tp_rank + 1) * shards / tp_size};
}

}  // namespace tenure::kv
