// A snapshot of what the daemon itself did, beside its pool's figures.
#pragma once

#include <cstdint>

#include "tenure/base/units.h"
#include "tenure/daemon/stats_fields.h"

namespace tenure::daemon {

struct DaemonStats {
  int64_t clients = 0;
  int64_t draining = 0;  // 1 from the signal to end on.
  Bytes held_bytes;
  Bytes held_bytes_of_one_max;
  int64_t held_objects = 0;
  int64_t leased_keys = 0;
  Bytes unsent_bytes;
  int64_t clients_total = 0;
  int64_t clients_refused_total = 0;
  int64_t clients_cut_off_total = 0;
  int64_t messages_total = 0;
  int64_t errors_total = 0;
  int64_t held_refusals_total = 0;
};

// Calls visit(MetricInfo, field) for each field.
template <typename Self, typename Visitor>
void VisitDaemonStats(Self& stats, const Visitor& visit) {
  using Info = MetricInfo;
  visit(Info{"tenure_daemon_clients", "", "gauge", "Connections, those cut off but perhaps still copying among them."},
        stats.clients);
  visit(Info{"tenure_daemon_draining", "", "gauge", "1 while the daemon ends, else 0."}, stats.draining);
  visit(Info{"tenure_daemon_held_bytes", "", "gauge", "Bytes reserved and pinned by all clients."}, stats.held_bytes);
  visit(Info{"tenure_daemon_client_held_bytes_max", "", "gauge",
             "Bytes reserved and pinned by the client with the most."},
        stats.held_bytes_of_one_max);
  visit(Info{"tenure_daemon_held_objects", "", "gauge", "Objects reserved and pinned by all clients."},
        stats.held_objects);
  visit(Info{"tenure_daemon_leased_keys", "", "gauge", "Keys of leases not yet released or found to have run out."},
        stats.leased_keys);
  visit(Info{"tenure_daemon_unsent_bytes", "", "gauge", "Bytes of answers that clients have not taken."},
        stats.unsent_bytes);
  visit(Info{"tenure_daemon_clients_total", "", "counter", "Connections accepted."}, stats.clients_total);
  visit(Info{"tenure_daemon_clients_refused_total", "", "counter", "Connections refused: another user, or too many."},
        stats.clients_refused_total);
  visit(Info{"tenure_daemon_clients_cut_off_total", "", "counter",
             "Connections ended for malformed messages or unread answers."},
        stats.clients_cut_off_total);
  visit(Info{"tenure_daemon_messages_total", "", "counter", "Messages handled."}, stats.messages_total);
  visit(Info{"tenure_daemon_errors_total", "", "counter", "Messages answered with an error."}, stats.errors_total);
  visit(Info{"tenure_daemon_held_refusals_total", "", "counter",
             "Objects not handed out because their client held too much."},
        stats.held_refusals_total);
}

}  // namespace tenure::daemon
