#include "tenure/handoff/closed_here.h"

#include <sys/socket.h>

#include <cerrno>

#include "absl/status/statusor.h"
#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/pd/worker_address.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/tcp_socket.h"

namespace tenure::handoff {
namespace {

using transfer::SocketAddress;
using transfer::TcpSocket;

absl::StatusOr<SocketAddress> ParseWorkerAddress(const std::string& address) {
  constexpr size_t kSchemeBytes = 6;  // tcp://
  const size_t colon = address.rfind(':');
  std::string host = address.substr(kSchemeBytes, colon - kSchemeBytes);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  TENURE_ASSIGN_OR_RETURN(const int64_t port, ParseCount("port", address.substr(colon + 1), 1, 65'535));
  return transfer::NumericAddress(host, static_cast<uint16_t>(port));
}

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
  if (!pd::IsWorkerAddress(address)) return false;
  const absl::StatusOr<SocketAddress> peer = ParseWorkerAddress(address);
  if (!peer.ok() || !IsOwn(*peer)) return false;
  const TcpSocket asked(socket(peer->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!asked.valid()) return false;
  // Within a host the answer is there at once.
  if (connect(asked.fd(), peer->get(), peer->size) == 0) return false;
  return errno == ECONNREFUSED || asked.Error() == ECONNREFUSED;
}

}  // namespace tenure::handoff
