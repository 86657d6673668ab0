// The text of object keys and the layout of a model's parts over ranks, as stock connectors have them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/bind.h"
#include "bindings/convert.h"
#include "bindings/errors.h"
#include "tenure/base/status.h"
#include "tenure/kv/key_format.h"
#include "tenure/kv/store_layout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

constexpr int64_t kRanksMax = 65'536;

kv::Parallelism ParallelismFrom(int64_t tp_size, int64_t pcp_size, int64_t dcp_size, int64_t pp_size) {
  CheckRange("tp_size", tp_size, 1, kRanksMax);
  CheckRange("pcp_size", pcp_size, 1, kRanksMax);
  CheckRange("dcp_size", dcp_size, 1, kRanksMax);
  CheckRange("pp_size", pp_size, 1, kRanksMax);
  CheckRange("tp_size * pcp_size * pp_size", tp_size * pcp_size * pp_size, 1, kRanksMax);
  return {tp_size, pcp_size, dcp_size, pp_size};
}

kv::KeyNames NamesFrom(const std::string& model, const std::string& cache_prefix, const std::string& store_namespace) {
  kv::KeyNames names = {.cache_prefix = cache_prefix, .model = model, .store_namespace = store_namespace};
  ThrowIfError(kv::CheckKeyNames(names));
  return names;
}

std::string NamespacePrefix(const std::string& model, int32_t group, int64_t tp, int64_t pcp, int64_t dcp, int64_t pp,
                            const std::string& cache_prefix, const std::string& store_namespace) {
  CheckRange("group", group, 0, 63);
  const kv::KeyRank rank = {.tp = tp, .pcp = pcp, .dcp = dcp, .pp = pp};
  for (const int64_t part : {tp, pcp, dcp, pp}) CheckRange("tp, pcp, dcp, pp", part, 0, int64_t{1} << 31);
  return kv::NamespacePrefix(NamesFrom(model, cache_prefix, store_namespace), rank, kv::GroupIndex(group));
}

kv::StoreLayout ResolveStoreLayout(std::optional<int64_t> store_tp_size, const std::vector<int64_t>& prefill_tp_sizes,
                                   bool enable_store_tp_lcm, const std::string& cache_layout, int64_t tp_size,
                                   int64_t pcp_size, int64_t dcp_size, int64_t pp_size, int64_t num_store_groups,
                                   bool exactly_full_attention, bool cross_layers_blocks, int64_t total_kv_heads) {
  CheckRange("num_store_groups", num_store_groups, 1, 64);
  CheckRange("total_kv_heads", total_kv_heads, 1, int64_t{1} << 31);
  kv::StoreTpOptions requested;
  requested.use_lcm = enable_store_tp_lcm;
  requested.prefill_tp_sizes = prefill_tp_sizes;
  requested.store_tp_size = store_tp_size;
  kv::StoreLayoutOptions options;
  options.store_tp = kv::RequestedStoreTp(requested);
  options.parallelism = ParallelismFrom(tp_size, pcp_size, dcp_size, pp_size);
  options.cache_layout = cache_layout;
  options.num_store_groups = num_store_groups;
  options.exactly_full_attention = exactly_full_attention;
  options.cross_layers_blocks = cross_layers_blocks;
  options.total_kv_heads = total_kv_heads;
  return kv::ResolveStoreLayout(options);
}

std::string ToString(kv::StoreLayoutKind kind) {
  switch (kind) {
    case kv::StoreLayoutKind::kPlain:
      return "plain";
    case kv::StoreLayoutKind::kTpSharded:
      return "tp_sharded";
    case kv::StoreLayoutKind::kSharedMqa:
      return "shared_mqa";
    case kv::StoreLayoutKind::kRankLocal:
      return "rank_local";
  }
  return "unknown";
}

void BindLayout(nb::module_& module) {
  nb::class_<kv::StoreLayout>(
      module, "StoreLayout",
      "How a model's KV is cut over tensor-parallel ranks in the store.\n\n"
      "kind: 'plain', 'tp_sharded' (KeyRank.tp is a shard), 'shared_mqa', or 'rank_local' (asked for but not "
      "possible:\n"
      "warn). store_namespace: part of every key. shards: of the whole model, 'tp_sharded' only.")
      .def_prop_ro("kind", [](const kv::StoreLayout& self) { return ToString(self.kind); })
      .def_ro("store_namespace", &kv::StoreLayout::store_namespace)
      .def_ro("shards", &kv::StoreLayout::shards)
      .def(
          "shards_of",
          [](const kv::StoreLayout& self, int64_t tp_rank, int64_t tp_size) {
            CheckRange("tp_size", tp_size, 1, kRanksMax);
            CheckRange("tp_rank", tp_rank, 0, tp_size - 1);
            const kv::ShardRange range = kv::ShardsOf(self.shards, tp_rank, tp_size);
            return std::pair(range.first, range.end);
          },
          "tp_rank"_a, "tp_size"_a, "The shards [first, end) that a rank owns; 'tp_sharded' only, else (0, 0).");
  module.def("resolve_store_layout", &ResolveStoreLayout, nb::kw_only(), "store_tp_size"_a.none() = nb::none(),
             "prefill_tp_sizes"_a = std::vector<int64_t>(), "enable_store_tp_lcm"_a = false, "cache_layout"_a,
             "tp_size"_a = 1, "pcp_size"_a = 1, "dcp_size"_a = 1, "pp_size"_a = 1, "num_store_groups"_a = 1,
             "exactly_full_attention"_a = true, "cross_layers_blocks"_a = false, "total_kv_heads"_a,
             "The StoreLayout that stock connectors choose for these options; cache_layout as the engine names it.");
}

}  // namespace

void BindKeys(nb::module_& module) {
  module.def("model_name", &kv::ModelName, "model_id"_a,
             "The last component of a model id, which keys carry: 'org/Llama-3/' is 'Llama-3'.");
  module.def(
      "namespace_prefix", &NamespacePrefix, "model"_a, "group"_a, nb::kw_only(), "tp"_a = 0, "pcp"_a = 0, "dcp"_a = 0,
      "pp"_a = 0, "cache_prefix"_a = "", "store_namespace"_a = "",
      "The text of a stock key up to its hash, with the last '@': what Pool.open_namespace takes. tp is already\n"
      "divided by the replication factor, or a shard. ValueError for control characters and texts above 512 bytes.");
  module.def(
      "key_text",
      [](const std::string& prefix, const nb::bytes& hash) { return kv::KeyText(prefix, HashFrom("hash", hash)); },
      "prefix"_a, "hash"_a, "The whole text of a stock key: the prefix and the hash in lower-case hexadecimal.");
  module.def(
      "mooncake_group_id",
      [](const std::string& model, const nb::bytes& hash, const std::string& cache_prefix,
         const std::string& store_namespace) {
        return kv::MooncakeGroupId(NamesFrom(model, cache_prefix, store_namespace), HashFrom("hash", hash));
      },
      "model"_a, "hash"_a, nb::kw_only(), "cache_prefix"_a = "", "store_namespace"_a = "",
      "Mooncake's group id: one for all ranks and groups of a hash, so a lease on one of them is a lease on all.");
  module.def(
      "replication_factor",
      [](int64_t tp_size, int64_t dcp_size, bool any_state, bool all_latent, int64_t total_kv_heads) {
        CheckRange("total_kv_heads", total_kv_heads, 1, int64_t{1} << 31);
        return kv::ReplicationFactor({any_state, all_latent, total_kv_heads}, ParallelismFrom(tp_size, 1, dcp_size, 1));
      },
      nb::kw_only(), "tp_size"_a = 1, "dcp_size"_a = 1, "any_state"_a = false, "all_latent"_a = false,
      "total_kv_heads"_a = 1, "How many tensor-parallel ranks hold the same bytes of a group.");
  module.def(
      "lookup_ranks",
      [](int64_t replicas, int64_t tp_size, int64_t pcp_size, int64_t dcp_size, int64_t pp_size) {
        const kv::Parallelism parallelism = ParallelismFrom(tp_size, pcp_size, dcp_size, pp_size);
        CheckRange("replicas", replicas, 1, tp_size);
        std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> ranks;
        for (const kv::KeyRank& rank : kv::LookupRanks(parallelism, replicas)) {
          ranks.emplace_back(rank.tp, rank.pcp, rank.dcp, rank.pp);
        }
        return ranks;
      },
      "replicas"_a, nb::kw_only(), "tp_size"_a = 1, "pcp_size"_a = 1, "dcp_size"_a = 1, "pp_size"_a = 1,
      "The (tp, pcp, dcp, pp) ranks on which a lookup must find a chunk, in the order in which stock connectors ask.");
  BindLayout(module);
}

}  // namespace tenure::python
