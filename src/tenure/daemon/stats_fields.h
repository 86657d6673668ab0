// The figures of a pool as one list: name, meaning and place of each. The wire's stats message and the metrics page
// both walk it, so that they cannot differ.
#pragma once

#include <cstdint>
#include <string_view>

#include "tenure/store/pool.h"

namespace tenure::daemon {

// How a figure appears among the metrics. Figures of one name differ by their labels and stand together.
struct MetricInfo {
  std::string_view name;
  std::string_view labels;  // As in the exposition, without braces; empty for none.
  std::string_view type;    // "gauge" or "counter".
  std::string_view help;
};

// The reasons why an object cannot leave; `Self` is HeldCounts, const or not.
template <typename Self, typename Visitor>
void VisitHeld(Self& held, MetricInfo info, const Visitor& visit) {
  info.labels = "reason=\"leased\"";
  visit(info, held.leased);
  info.labels = "reason=\"pinned\"";
  visit(info, held.pinned);
  info.labels = "reason=\"writing\"";
  visit(info, held.writing);
  info.labels = "reason=\"waiting\"";
  visit(info, held.waiting);
  info.labels = "reason=\"parents\"";
  visit(info, held.parents);
}

// Calls visit(MetricInfo, field) for each field of PoolStats, in the order of the wire: a new one goes to the end.
template <typename Self, typename Visitor>
void VisitPoolStats(Self& stats, const Visitor& visit) {
  using Info = MetricInfo;
  visit(Info{"tenure_pool_capacity_bytes", "", "gauge", "Memory for objects."}, stats.capacity);
  visit(Info{"tenure_pool_used_bytes", "", "gauge", "Memory taken by objects in any state."}, stats.used);
  visit(Info{"tenure_pool_objects", "", "gauge", "Objects that a probe finds."}, stats.objects);
  visit(Info{"tenure_pool_namespaces", "", "gauge", "Key prefixes known."}, stats.namespaces);
  VisitHeld(stats.held, Info{"tenure_pool_held_objects", "", "gauge", "Objects that cannot be evicted now, by reason."},
            visit);
  visit(Info{"tenure_pool_index_bytes", "", "gauge", "Memory of the index."}, stats.index_bytes);
  visit(Info{"tenure_pool_probed_keys_total", "", "counter", "Keys probed."}, stats.probed_keys_total);
  visit(Info{"tenure_pool_probe_hits_total", "", "counter", "Keys probed and found."}, stats.probe_hits_total);
  visit(Info{"tenure_pool_leased_keys_total", "", "counter", "Keys leased."}, stats.leased_keys_total);
  visit(Info{"tenure_pool_lease_misses_total", "", "counter", "Keys that a lease did not find."},
        stats.lease_misses_total);
  visit(Info{"tenure_pool_stored_total", "", "counter", "Objects stored."}, stats.stored_total);
  visit(Info{"tenure_pool_stored_bytes_total", "", "counter", "Their bytes."}, stats.stored_bytes_total);
  visit(Info{"tenure_pool_exists_total", "", "counter", "Puts of an object that was there."}, stats.exists_total);
  visit(Info{"tenure_pool_gets_total", "", "counter", "Objects read."}, stats.gets_total);
  visit(Info{"tenure_pool_get_misses_total", "", "counter", "Reads that found nothing."}, stats.get_misses_total);
  visit(Info{"tenure_pool_checksum_failures_total", "", "counter",
             "Reads whose bytes were not those put; each is a miss."},
        stats.checksum_failures_total);
  visit(Info{"tenure_pool_evicted_total", "", "counter", "Objects evicted to make room."}, stats.evicted_total);
  visit(Info{"tenure_pool_evicted_bytes_total", "", "counter", "Their bytes."}, stats.evicted_bytes_total);
  visit(Info{"tenure_pool_evicted_waiting_total", "", "counter", "Objects dropped while they waited for a parent."},
        stats.evicted_waiting_total);
  visit(Info{"tenure_pool_removed_total", "", "counter", "Objects removed on request, with their descendants."},
        stats.removed_total);
  visit(Info{"tenure_pool_passes_total", "", "counter", "Watermark passes started."}, stats.passes_total);
  visit(Info{"tenure_pool_recut_slabs_total", "", "counter", "Slabs cut anew for another object size."},
        stats.recut_slabs_total);
  const std::string_view refused = "Puts refused, by cause.";
  visit(Info{"tenure_pool_refused_total", "cause=\"full\"", "counter", refused}, stats.refused_full_total);
  visit(Info{"tenure_pool_refused_total", "cause=\"index\"", "counter", refused}, stats.refused_index_total);
  visit(Info{"tenure_pool_refused_total", "cause=\"waiting\"", "counter", refused}, stats.refused_waiting_total);
  visit(Info{"tenure_pool_refused_total", "cause=\"size\"", "counter", refused}, stats.refused_size_total);
  VisitHeld(stats.refused_by,
            Info{"tenure_pool_refused_held_objects_total", "", "counter",
                 "Objects that stood in the way when a put was refused, summed over the refusals, by reason."},
            visit);
}

}  // namespace tenure::daemon
