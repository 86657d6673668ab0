// The transport between hosts without RDMA and for memory of the host: plain TCP, no library between.
//
// P sends the pieces of a post from its registered memory, D's thread reads them into its own and answers when all are
// there; so a D that is stopped makes a post run into its deadline. Posts to one peer go one after the other, posts to
// several at the same time; one thread does all of it and sleeps when nothing moves. A peer that dies is an error at
// once, a host that vanishes, or a peer that takes nothing, after TcpSocket::kSilenceMax (20 s) or at the deadline.
//
// Bytes from the network never end the process, whoever sends them, and none are written outside of what D has
// registered. Who knows D's address may write there: let only P and D reach each other's ports. Registered memory that
// D unmaps ends D's process. GPU memory cannot be reached.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

struct TcpTransportOptions {
  // Of this machine: peers connect to this address, at a port that the system chooses. A name is looked up once.
  std::string host = "127.0.0.1";
  // Connections of peers that write to this process; beyond them, new ones are refused with a line in the log.
  size_t writers_max = 4096;
};

class TcpTransport : public Transport {
 public:
  // `clock` outlives the transport. InvalidArgument: `host`. Unavailable: the system gives no sockets.
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Create(const TcpTransportOptions& options, const Clock& clock);

  static constexpr std::string_view kKind = "tcp";
  std::string_view kind() const override { return kKind; }

  // Open connections to peers; beyond them the longest unused one is closed.
  static constexpr size_t kConnectionsMax = 1024;
};

}  // namespace tenure::transfer
