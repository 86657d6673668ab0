#include "tenure/daemon/listening_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tenure/base/status.h"
#include "tenure/daemon/unix_address.h"

namespace tenure::daemon {
namespace {

constexpr int kBacklog = 128;

std::string LockPath(const std::string& socket_path) { return socket_path + ".lock"; }

bool SameFile(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::string HolderOf(int lock) {
  std::array<char, 32> text{};
  const ssize_t size = pread(lock, text.data(), text.size(), 0);
  return size > 0 ? fmt::format("process {}", std::string_view(text.data(), static_cast<size_t>(size)))
                  : "another process";
}

// The lock of the path, held until the descriptor is closed.
absl::StatusOr<FileDescriptor> TakeLock(const std::string& socket_path) {
  const std::string path = LockPath(socket_path);
  for (;;) {
    FileDescriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) {
      return InvalidArgument(
          "--socket {}: the lock file {} cannot be opened ({}); give a path in a folder of this user", socket_path,
          path, std::strerror(errno));
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return FailedPrecondition("--socket {}: {} serves it already; stop that daemon or give another path", socket_path,
                                HolderOf(lock.get()));
    }
    // Its last holder may have removed the file between our open and our lock; then the name is free for a third.
    if (!SameFile(lock.get(), path)) continue;
    const std::string holder = fmt::format("{}", getpid());
    if (ftruncate(lock.get(), 0) != 0 ||
        pwrite(lock.get(), holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
      return InvalidArgument("--socket {}: writing {} failed ({})", socket_path, path, std::strerror(errno));
    }
    return lock;
  }
}

// Before anyone can connect, so that there is no instant with another mode.
absl::Status SetAccess(const SocketOptions& options) {
  const char* path = options.path.c_str();
  if (options.group.has_value() && chown(path, static_cast<uid_t>(-1), *options.group) != 0) {
    return InvalidArgument("--socket {}: giving it to group {} failed ({}); give a group that this user is in",
                           options.path, *options.group, std::strerror(errno));
  }
  if (chmod(path, options.group.has_value() ? 0660 : 0600) != 0) {
    return InvalidArgument("--socket {}: setting its mode failed ({})", options.path, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSocketPath(const std::string& path) {
  if (absl::StatusOr<sockaddr_un> address = UnixAddress(path); !address.ok()) {
    return InvalidArgument("--socket: {}", Message(address.status()));
  }
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return InvalidArgument("--socket {}: there is no folder {}; make it, or give another path", path, folder.string());
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return InvalidArgument("--socket {}: this user may not create files in {}; give another path", path,
                           folder.string());
  }
  if (lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return InvalidArgument("--socket {}: there is a file of another kind; remove it, or give another path", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<ListeningSocket> ListeningSocket::Bind(const SocketOptions& options) {
  TENURE_RETURN_IF_ERROR(CheckSocketPath(options.path));
  TENURE_ASSIGN_OR_RETURN(FileDescriptor lock, TakeLock(options.path));
  TENURE_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(options.path));
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Unavailable("no socket: {}", std::strerror(errno));
  unlink(options.path.c_str());
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return InvalidArgument("--socket {}: binding failed ({})", options.path, std::strerror(errno));
  }
  ListeningSocket bound(options, std::move(lock), std::move(socket));
  TENURE_RETURN_IF_ERROR(SetAccess(options));
  return bound;
}

ListeningSocket::~ListeningSocket() {
  if (!lock_.valid()) return;
  Close();
  // While the lock is held nobody else can have made this file.
  unlink(LockPath(options_.path).c_str());
}

void ListeningSocket::Close() {
  if (!socket_.valid()) return;
  unlink(options_.path.c_str());
  socket_ = FileDescriptor();
}

absl::Status ListeningSocket::Listen() {
  if (listen(socket_.get(), kBacklog) != 0) {
    return Unavailable("--socket {}: listening failed ({})", options_.path, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace tenure::daemon
