#include "tenure/handoff/closed_here.h"

#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "absl/status/statusor.h"
#include "tenure/pd/worker_address.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/tcp_socket.h"

namespace tenure::handoff {
namespace {

using transfer::SocketAddress;
using transfer::TcpSocket;

// Whether the way to an address leads back to this host. Connecting a datagram socket sends nothing.
bool IsOwn(const SocketAddress& peer) {
  const TcpSocket route(socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress own;
  own.size = sizeof(own.storage);
  return route.valid() && connect(route.fd(), peer.get(), peer.size) == 0 &&
         getsockname(route.fd(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) == 0 &&
         transfer::HostOf(own) == transfer::HostOf(peer);
}

}  // namespace

bool IsClosedHere(const std::string& address) {
  const std::optional<pd::WorkerAddress> worker = pd::ParseWorkerAddress(address);
  if (!worker) return false;
  const absl::StatusOr<SocketAddress> peer = transfer::NumericAddress(worker->host, worker->port);
  if (!peer.ok() || !IsOwn(*peer)) return false;
  const TcpSocket asked(socket(peer->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!asked.valid()) return false;
  // Within a host the answer is there at once.
  if (connect(asked.fd(), peer->get(), peer->size) == 0) return false;
  return errno == ECONNREFUSED || asked.Error() == ECONNREFUSED;
}

}  // namespace tenure::handoff
