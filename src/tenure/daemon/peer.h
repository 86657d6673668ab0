// Who is at the other end of a Unix socket, by the kernel's word.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "tenure/daemon/file_descriptor.h"

namespace tenure::daemon {

struct Peer {
  pid_t pid = 0;  // 0: in a PID namespace that this process cannot see.
  uid_t uid = 0;
  // Readable when the process has ended, however many others still hold its socket. Not valid where the process cannot
  // be seen: then the end of the socket is the end of the peer.
  FileDescriptor death;
};

absl::StatusOr<Peer> PeerOf(int socket);

// This user, root, and members of `group` where one is given.
bool MayConnect(int socket, const Peer& peer, std::optional<uint32_t> group);

}  // namespace tenure::daemon
