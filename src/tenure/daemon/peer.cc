#include "tenure/daemon/peer.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

constexpr int kPeerPidfdOption = 77;  // SO_PEERPIDFD of Linux 6.5; older headers do not name it.
constexpr size_t kGroupsMax = 65'536;

// Not valid where the process cannot be seen or the kernel has no such descriptors.
absl::StatusOr<FileDescriptor> OpenDeath(int socket, pid_t pid) {
  if (pid <= 0) return FileDescriptor();
  int fd = -1;
  socklen_t size = sizeof fd;
  // Names the very process that connected; opening by number could meet its successor.
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfdOption, &fd, &size) == 0) return FileDescriptor(fd);
  if (errno == ENOPROTOOPT) fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) return FileDescriptor(fd);
  if (errno == ESRCH || errno == EINVAL) return Unavailable("process {} has ended", pid);
  return FileDescriptor();
}

bool InGroup(int socket, gid_t group) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  if (credentials.gid == group) return true;
  std::vector<gid_t> groups(kGroupsMax);
  size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
  groups.resize(size / sizeof(gid_t));
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

}  // namespace

absl::StatusOr<Peer> PeerOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Unavailable("the peer of a connection is unknown: {}", std::strerror(errno));
  }
  TENURE_ASSIGN_OR_RETURN(FileDescriptor death, OpenDeath(socket, credentials.pid));
  return Peer{.pid = credentials.pid, .uid = credentials.uid, .death = std::move(death)};
}

bool MayConnect(int socket, const Peer& peer, std::optional<uint32_t> group) {
  return peer.uid == 0 || peer.uid == geteuid() || (group.has_value() && InGroup(socket, *group));
}

}  // namespace tenure::daemon
