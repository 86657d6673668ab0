// Keeps a client connected: a thread that watches the connection, takes it down when it is lost, and makes a new one
// with growing pauses.
//
// Who calls the daemon takes the current session and holds it while it copies. The memory of a lost session is unmapped
// before a new one is mapped, so that a daemon's restart never costs its memory twice; a copy that still runs delays
// the new session, nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/mutex.h"
#include "tenure/daemon/client_session.h"
#include "tenure/daemon/file_descriptor.h"
#include "tenure/daemon/turnstile.h"

namespace tenure::daemon {

struct LiveSession {
  LiveSession(std::unique_ptr<ClientSession> connected, uint32_t number)
      : epoch(number), client(std::move(connected)) {}

  const uint32_t epoch;  // Counts the sessions of one keeper, from 1.
  Turnstile turn;
  const std::unique_ptr<ClientSession> client;  // Its calls under `turn`.
  // The daemon's ids by ours; kNoNamespace where it was not asked yet.
  static constexpr uint32_t kNoNamespace = UINT32_MAX;
  std::vector<uint32_t> namespaces ABSL_GUARDED_BY(turn);
};

struct SessionKeeperOptions {
  std::string socket_path;
  absl::Duration patience;     // For a new connection to be answered.
  absl::Duration backoff_min;  // Pause after the first failed attempt; doubles up to the most.
  absl::Duration backoff_max;
  bool populate = true;  // Enter all of the pool's pages into this process's page table, in the background.
};

class SessionKeeper {
 public:
  // Connects once; the status says why that failed. From then on the thread keeps the connection.
  static absl::StatusOr<std::unique_ptr<SessionKeeper>> Start(const SessionKeeperOptions& options);
  // Waits for the thread, not for sessions that are still held.
  ~SessionKeeper();

  // The pool's mode, the same in all sessions.
  bool closed() const { return closed_ != 0; }
  // Null while there is none.
  std::shared_ptr<LiveSession> Current() const;
  // In a forked child, whose thread is not there: gives up everything without a word to the daemon.
  static void Abandon(std::unique_ptr<SessionKeeper> keeper);

 private:
  // Outlives the keeper while a session is held.
  struct Signal {
    FileDescriptor wake;
    std::atomic<int> sessions{0};
    std::atomic<bool> stop{false};
    void Wake() const;
  };

  explicit SessionKeeper(const SessionKeeperOptions& options);
  absl::Status Connect();
  void Run();
  void Watch(const LiveSession& session);
  void Populate(LiveSession& session);
  // Returns when woken, when `fd` (if any) hung up, or after `at_most`.
  void Wait(int fd, absl::Duration at_most);

  const SessionKeeperOptions options_;
  const std::shared_ptr<Signal> signal_;
  uint32_t last_epoch_ = 0;  // The thread's own, but for the first connection.
  uint8_t closed_ = 0;       // The first daemon's mode: a later one must have the same.
  mutable Mutex mutex_;
  std::shared_ptr<LiveSession> current_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tenure::daemon
