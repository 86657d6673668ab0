// The daemon's place in the file system: one Unix socket that only one daemon at a time can hold.
//
// A lock file beside the socket (PATH.lock, released by the kernel when its holder dies) decides who owns the path:
// with the lock a socket file that is there is stale and is taken over, without it the path is refused by name. Both
// are removed by the destructor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/daemon/file_descriptor.h"

namespace tenure::daemon {

struct SocketOptions {
  std::string path;
  std::optional<uint32_t> group;  // Group id that may connect too (mode 0660 instead of 0600).
};

// InvalidArgument for a path that can hold no socket: empty, too long, in a missing folder or one without permission,
// or taken by a file of another kind. Touches nothing.
absl::Status CheckSocketPath(const std::string& path);

class ListeningSocket {
 public:
  // FailedPrecondition when another daemon holds the path; the message has its process id.
  static absl::StatusOr<ListeningSocket> Bind(const SocketOptions& options);
  ListeningSocket(ListeningSocket&& other) noexcept = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return socket_.get(); }
  const SocketOptions& options() const { return options_; }
  // Connections are accepted from here on.
  absl::Status Listen();
  // Nobody can connect any more and the socket file is gone; the lock stays, so that no other daemon takes its memory
  // meanwhile.
  void Close();

 private:
  ListeningSocket(SocketOptions options, FileDescriptor lock, FileDescriptor socket)
      : options_(std::move(options)), lock_(std::move(lock)), socket_(std::move(socket)) {}

  SocketOptions options_;
  FileDescriptor lock_;
  FileDescriptor socket_;
};

}  // namespace tenure::daemon
