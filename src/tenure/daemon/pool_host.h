// A daemon's core in one piece: the pool without bytes, the memory its clients map, the socket, and the server between.
//
// `tenure serve` runs one as a process; an engine whose processes share a pool hosts one on a thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/daemon/daemon_server.h"
#include "tenure/store/embedded_pool.h"
#include "tenure/store/maintenance_thread.h"

namespace tenure::daemon {

struct PoolHostOptions {
  std::string socket;
  Bytes memory;                         // Whole slabs are used.
  Bytes slab_bytes{int64_t{64} << 20};  // The largest object.
  store::PoolMode mode = store::PoolMode::kClosed;
  std::optional<uint32_t> group;  // Who may connect besides this user (listening_socket.h).
  bool huge_pages = false;
  Bytes held_bytes_max;  // As in DaemonServerOptions, like the next two.
  int clients_max = 1024;
  absl::Duration drain_timeout = absl::Seconds(10);
};

class PoolHost {
 public:
  // Holds the path, then takes all memory; listens once Listen() of the server is called. InvalidArgument and
  // FailedPrecondition (another daemon holds the path) name the option.
  static absl::StatusOr<std::unique_ptr<PoolHost>> Create(const PoolHostOptions& options);
  PoolHost(const PoolHost&) = delete;
  PoolHost& operator=(const PoolHost&) = delete;

  DaemonServer& server() { return *server_; }

 private:
  PoolHost() = default;

  MonotonicClock clock_;
  std::unique_ptr<store::EmbeddedPool> pool_;
  std::unique_ptr<DaemonServer> server_;
  std::unique_ptr<store::MaintenanceThread> maintenance_;
};

}  // namespace tenure::daemon
