#include "tenure/daemon/pool_host.h"

#include <utility>

#include "tenure/base/status.h"
#include "tenure/daemon/listening_socket.h"
#include "tenure/daemon/shared_memory.h"

namespace tenure::daemon {

absl::StatusOr<std::unique_ptr<PoolHost>> PoolHost::Create(const PoolHostOptions& options) {
  // The path first: a second daemon must be refused before it takes memory.
  TENURE_ASSIGN_OR_RETURN(ListeningSocket socket,
                          ListeningSocket::Bind({.path = options.socket, .group = options.group}));
  std::unique_ptr<PoolHost> host(new PoolHost);
  store::EmbeddedPoolOptions pool_options;
  pool_options.capacity = options.memory;
  pool_options.slab_bytes = options.slab_bytes;
  pool_options.mode = options.mode;
  pool_options.memory = store::MemoryKind::kVirtual;  // The bytes lie in the shared memory, at the same offsets.
  TENURE_ASSIGN_OR_RETURN(host->pool_, store::EmbeddedPool::Create(pool_options, host->clock_));
  TENURE_ASSIGN_OR_RETURN(SharedMemory memory,
                          SharedMemory::Create({.size = options.memory, .huge_pages = options.huge_pages}));
  const DaemonServerOptions server_options{.closed = options.mode == store::PoolMode::kClosed,
                                           .object_bytes_max = options.slab_bytes,
                                           .held_bytes_max = options.held_bytes_max,
                                           .clients_max = options.clients_max,
                                           .drain_timeout = options.drain_timeout};
  TENURE_ASSIGN_OR_RETURN(host->server_, DaemonServer::Create(server_options, *host->pool_, std::move(memory),
                                                              std::move(socket), host->clock_));
  host->maintenance_ = std::make_unique<store::MaintenanceThread>(*host->pool_);
  return host;
}

}  // namespace tenure::daemon
