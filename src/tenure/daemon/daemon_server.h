// The shell around the daemon's sessions: one thread, one epoll, never blocked by a client.
//
// A client's requests are read as they come and its answers sent as it takes them; one that lets more than
// kUnsentBytesMax pile up, or whose bytes are no messages, is cut off. A client is gone when its process has ended or
// its end of the socket is closed; only then do its reservations and pins end, since until then it may still copy (a
// client closes only when no copy of it runs).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/daemon/daemon_connection.h"
#include "tenure/daemon/daemon_session.h"
#include "tenure/daemon/daemon_stats.h"
#include "tenure/daemon/file_descriptor.h"
#include "tenure/daemon/listening_socket.h"
#include "tenure/daemon/shared_memory.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::daemon {

struct DaemonServerOptions {
  bool closed = false;     // The pool's mode, for the clients to know.
  Bytes object_bytes_max;  // The pool's slab.
  Bytes held_bytes_max;    // Reserved and pinned bytes of one client; 0: half of the memory, at least one object.
  int clients_max = 1024;  // Connections, those that were cut off but may still copy among them.
  absl::Duration drain_timeout = absl::Seconds(10);  // How long the end waits for copies that run.
};

class DaemonServer {
 public:
  // Neither listens nor runs yet. `pool` has the bytes of `memory` as its places (MemoryKind::kVirtual); it and `clock`
  // outlive the server.
  static absl::StatusOr<std::unique_ptr<DaemonServer>> Create(const DaemonServerOptions& options,
                                                              store::EmbeddedPool& pool, SharedMemory memory,
                                                              ListeningSocket socket, const Clock& clock);
  ~DaemonServer();

  // From here on clients can connect. Unavailable when the socket cannot be listened to.
  absl::Status Listen();
  // Serves on this thread until Stop and the drain that follows it.
  absl::Status Run();
  // Any thread, also a signal handler: no new clients and nothing new for the old ones; Run returns when nothing is
  // reserved or pinned any more, or after drain_timeout.
  void Stop();

  // Any thread.
  DaemonStats Stats() const;
  store::PoolStats PoolStats() const { return pool_.Stats(); }

 private:
  DaemonServer(const DaemonServerOptions& options, store::EmbeddedPool& pool, SharedMemory memory,
               ListeningSocket socket, const Clock& clock);

  struct Client {
    std::unique_ptr<DaemonConnection> connection;
    uint32_t watched = 0;  // Events of its socket that epoll tells.
  };

  absl::Status Add(int fd, uint32_t events, uint64_t token);
  void HandleEvent(uint64_t token, uint32_t events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Accept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const FileDescriptor& socket, ErrorCode code, std::string text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Welcome(FileDescriptor socket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve(uint64_t id, uint32_t events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginDrain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetAccepting(bool accepting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Milliseconds until the serving thread must look again; negative for never. Nothing when it is done.
  std::optional<int> NextWait() ABSL_LOCKS_EXCLUDED(mutex_);

  const DaemonServerOptions options_;
  store::EmbeddedPool& pool_;
  const Clock& clock_;
  const MonotonicClock real_clock_;  // For the drain, which waits for real copies.
  SharedMemory memory_;
  FileDescriptor epoll_;
  FileDescriptor stop_;

  // Held while events are handled, not while they are waited for.
  mutable Mutex mutex_;
  ListeningSocket listening_ ABSL_GUARDED_BY(mutex_);  // Closed from the drain on.
  bool accepting_ ABSL_GUARDED_BY(mutex_) = true;
  DaemonState state_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime drain_end_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Client> clients_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> busy_ ABSL_GUARDED_BY(mutex_);  // Clients with a message that has been read and not handled.
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  DaemonStats totals_ ABSL_GUARDED_BY(mutex_);  // Only its counters of clients.
};

}  // namespace tenure::daemon
