// One prompt's lookup in a pool, over the engine's own list of block hashes.
#include "tenure/connector/lookup.h"

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/list_hash_source.h"
#include "bindings/lookup_options.h"
#include "bindings/pool_handle.h"
#include "tenure/base/log.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

struct FoundHit {
  kv::Hit hit;
  std::string outcome;
  connector::LookupCost cost;
  std::shared_ptr<LeaseHandle> lease;
};

// Keeps what a Lookup borrows; calls from several threads take turns.
class LookupHandle {
 public:
  LookupHandle(const kv::CacheConfig& config, const std::shared_ptr<PoolState>& owner,
               std::shared_ptr<store::Pool> pool, connector::GroupNamespaces namespaces,
               const connector::LookupOptions& options)
      : owner_(owner),
        config_(std::make_unique<kv::CacheConfig>(config)),
        lookup_(ValueOrThrow(connector::Lookup::Create(*config_, *pool, std::move(namespaces), options))),
        pool_(std::move(pool)) {}

  FoundHit Find(const nb::list& hashes, int64_t num_tokens) {
    CheckRange("num_tokens", num_tokens, 0, kv::CacheConfig::kTokensMax);
    ThrowIfError(owner_->Open().status());
    const ListHashSource source(hashes);
    connector::LookupResult result;
    {
      nb::gil_scoped_release unlocked;
      MutexLock lock(mutex_);
      result = lookup_.Find(source, Tokens(num_tokens));
    }
    if (!result.error.ok()) {
      LogWarning("a lookup of {} tokens failed and counts as a miss: {}", num_tokens, Message(result.error));
    }
    return {std::move(result.hit), std::string(ToString(result.outcome)), result.cost,
            std::make_shared<LeaseHandle>(pool_, std::move(result.leases))};
  }

  connector::LookupCounters Counters() {
    nb::gil_scoped_release unlocked;
    MutexLock lock(mutex_);
    return lookup_.counters();
  }

 private:
  std::shared_ptr<PoolState> owner_;
  std::unique_ptr<kv::CacheConfig> config_;
  Mutex mutex_;
  connector::Lookup lookup_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<store::Pool> pool_;
};

void Init(LookupHandle* self, const kv::CacheConfig& config, const PoolHandle& pool, const NamespaceLists& namespaces,
          const std::string& search, const std::string& lease, double lease_ttl) {
  new (self) LookupHandle(config, pool.state(), pool.Open(), NamespaceIdsFrom(*pool.state(), namespaces),
                          LookupOptionsFrom(search, lease, lease_ttl));
}

nb::dict CountersOf(LookupHandle& self) {
  const connector::LookupCounters counters = self.Counters();
  nb::dict dict;
  dict["lookups_total"] = counters.lookups_total;
  dict["hits_total"] = counters.hits_total;
  dict["shorter_hits_total"] = counters.shorter_hits_total;
  dict["misses_total"] = counters.misses_total;
  dict["lost_misses_total"] = counters.lost_misses_total;
  dict["error_misses_total"] = counters.error_misses_total;
  dict["exhaustive_fallbacks_total"] = counters.exhaustive_fallbacks_total;
  dict["hit_tokens_total"] = counters.hit_tokens_total;
  dict["keys_probed_total"] = counters.keys_probed_total;
  dict["keys_leased_total"] = counters.keys_leased_total;
  return dict;
}

void BindResult(nb::module_& module) {
  nb::class_<FoundHit>(
      module, "LookupResult",
      "What one lookup found. While it or its lease lives, every key of the hit's load set stays until the\n"
      "lease's deadline.")
      .def_ro("hit", &FoundHit::hit, "The Hit; its length is 0 for a miss.")
      .def_prop_ro(
          "length", [](const FoundHit& self) { return self.hit.length.value(); }, "Tokens of the hit.")
      .def_ro("outcome", &FoundHit::outcome,
              "'hit', 'shorter hit', 'miss', 'miss by lost keys' or 'miss by error' (logged and counted).")
      .def_ro("lease", &FoundHit::lease, "The Lease of the load set; release it when the load has ended.")
      .def_prop_ro(
          "keys_probed", [](const FoundHit& self) { return self.cost.keys_probed; }, "Keys asked, on all ranks.")
      .def_prop_ro(
          "keys_leased", [](const FoundHit& self) { return self.cost.keys_leased; },
          "Keys of the last lease round; on a closed pool one key leases a chain.")
      .def_prop_ro(
          "probe_calls", [](const FoundHit& self) { return self.cost.probe_calls; },
          "Calls of the pool to find the hit.")
      .def_prop_ro(
          "lease_calls", [](const FoundHit& self) { return self.cost.lease_calls; }, "Calls of the pool to lease it.")
      .def("__bool__", [](const FoundHit& self) { return self.hit.length.value() > 0; })
      .def("__repr__", [](const FoundHit& self) {
        return fmt::format("LookupResult(length={}, outcome='{}')", self.hit.length.value(), self.outcome);
      });
}

}  // namespace

void BindLookup(nb::module_& module) {
  BindResult(module);
  nb::class_<LookupHandle>(
      module, "Lookup",
      "Finds the longest hit of a prompt in a pool and leases exactly what a load of it reads, on every rank.\n\n"
      "namespaces: per group of the config one Namespace of the pool for each rank that holds a part of it.\n"
      "search: 'tail_first' asks for few keys, 'exhaustive' for every candidate as stock vLLM does. lease: 'selective' "
      "(the\n"
      "load set) or 'all' (every present candidate, as stock). lease_ttl: seconds. ValueError names the argument.\n"
      "Calls from several threads take turns.")
      .def("__init__", &Init, "config"_a, "pool"_a, "namespaces"_a, nb::kw_only(), "search"_a = "tail_first",
           "lease"_a = "selective", "lease_ttl"_a = 10.0)
      .def("find", &LookupHandle::Find, "hashes"_a, "num_tokens"_a,
           "The LookupResult for a prompt of num_tokens tokens. hashes: the engine's own list of bytes, one hash (16 "
           "or 32\n"
           "bytes) for each full hash block. The list is read in place, without the interpreter's lock between "
           "batches, and\n"
           "only at the positions the search asks for; it may grow meanwhile. An item that is no hash, a list that "
           "shrinks\n"
           "and a pool that does not answer give a miss ('miss by error'); nothing else comes out of it but ValueError "
           "for\n"
           "num_tokens, TypeError for what is no list, and Error for a closed pool.")
      .def("counters", &CountersOf, "Sums over all lookups by name, each ending in _total.");
}

}  // namespace tenure::python
