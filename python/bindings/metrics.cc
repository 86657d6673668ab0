#include "bindings/metrics.h"

#include <string>

namespace nb = nanobind;

namespace tenure::python {
namespace {

void AddHeld(nb::dict& dict, const char* prefix, const char* suffix, const store::HeldCounts& held) {
  const auto add = [&](const char* reason, int64_t count) {
    dict[nb::str((std::string(prefix) + reason + suffix).c_str())] = count;
  };
  add("leased", held.leased);
  add("pinned", held.pinned);
  add("writing", held.writing);
  add("waiting", held.waiting);
  add("parents", held.parents);
}

}  // namespace

nb::dict ToDict(const store::PoolStats& stats) {
  nb::dict dict;
  dict["capacity_bytes"] = stats.capacity.value();
  dict["used_bytes"] = stats.used.value();
  dict["objects"] = stats.objects;
  dict["namespaces"] = stats.namespaces;
  dict["index_bytes"] = stats.index_bytes.value();
  AddHeld(dict, "held_", "_objects", stats.held);
  dict["probed_keys_total"] = stats.probed_keys_total;
  dict["probe_hits_total"] = stats.probe_hits_total;
  dict["leased_keys_total"] = stats.leased_keys_total;
  dict["lease_misses_total"] = stats.lease_misses_total;
  dict["stored_total"] = stats.stored_total;
  dict["stored_bytes_total"] = stats.stored_bytes_total.value();
  dict["exists_total"] = stats.exists_total;
  dict["gets_total"] = stats.gets_total;
  dict["get_misses_total"] = stats.get_misses_total;
  dict["checksum_failures_total"] = stats.checksum_failures_total;
  dict["evicted_total"] = stats.evicted_total;
  dict["evicted_bytes_total"] = stats.evicted_bytes_total.value();
  dict["evicted_waiting_total"] = stats.evicted_waiting_total;
  dict["removed_total"] = stats.removed_total;
  dict["passes_total"] = stats.passes_total;
  dict["recut_slabs_total"] = stats.recut_slabs_total;
  dict["refused_full_total"] = stats.refused_full_total;
  dict["refused_index_total"] = stats.refused_index_total;
  dict["refused_waiting_total"] = stats.refused_waiting_total;
  dict["refused_size_total"] = stats.refused_size_total;
  AddHeld(dict, "refused_by_", "_objects_total", stats.refused_by);
  return dict;
}

}  // namespace tenure::python
