// What the source files of DaemonPool share. Not for others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/daemon/client_namespaces.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/session_keeper.h"
#include "tenure/daemon/wire_messages.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {

// What a call returns when the daemon cannot be asked.
absl::Status NoDaemon();

struct DaemonPool::Internals {
  Internals(const DaemonPoolOptions& pool_options, const Clock& lease_clock)
      : options(pool_options), clock(lease_clock) {}

  const DaemonPoolOptions options;
  const Clock& clock;
  const MonotonicClock real_clock;
  int64_t process = 0;  // The one that connected.
  store::PoolTraits pool_traits;
  ClientNamespaces namespaces;
  std::unique_ptr<SessionKeeper> keeper;
  mutable Mutex stats_mutex;
  store::PoolStats last_stats ABSL_GUARDED_BY(stats_mutex);

  // Null when calls are misses: no connection, or a forked child.
  std::shared_ptr<LiveSession> Session() const;

  // What one call reserves or pins at one time: several threads together stay below the daemon's maximum for a client.
  int64_t WindowBytes(const LiveSession& session) const {
    const uint64_t allowed = session.client->hello().held_bytes_max / 8;
    return std::max(int64_t{1}, std::min(options.window_bytes.value(),
                                         static_cast<int64_t>(std::min<uint64_t>(allowed, INT64_MAX))));
  }

  absl::Status CheckKey(std::string_view what, size_t at, const store::ObjectKey& key) const;
  absl::Status CheckBatch(std::string_view what, size_t entries, size_t answers) const;
  absl::Status CheckKeys(std::span<const store::ObjectKey> keys, size_t answers) const;

  // Fills `request.keys` from `keys`, with the daemon's ids for their namespaces, and has it answered in the session's
  // turn. Returns the session, which keeps the memory mapped that the answer speaks of.
  template <typename Request, typename Reply>
  absl::StatusOr<std::shared_ptr<LiveSession>> AskKeys(std::span<const store::ObjectKey> keys, Request& request,
                                                       Reply& reply) {
    std::shared_ptr<LiveSession> session = Session();
    if (session == nullptr) return NoDaemon();
    const absl::Status status = InTurn(*session, [&](MonotonicTime deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      request.keys.assign(keys.begin(), keys.end());
      for (store::ObjectKey& key : request.keys) {
        TENURE_RETURN_IF_ERROR(namespaces.ToDaemons(*session, key, deadline));
      }
      return session->client->Call(request, deadline, reply);
    });
    if (!status.ok()) return status;
    return session;
  }

  // Runs `exchange(deadline)` in the session's turn. The deadline counts from now, the wait for the turn included. All
  // failures but bad input become Unavailable.
  template <typename Exchange>
  absl::Status InTurn(LiveSession& session, const Exchange& exchange) {
    const MonotonicTime deadline = real_clock.Now() + options.call_deadline;
    absl::Status status;
    {
      TurnstileLock turn(session.turn);
      status = exchange(deadline);
    }
    if (status.ok() || absl::IsInvalidArgument(status) || absl::IsUnavailable(status)) return status;
    return Unavailable("{}", Message(status));
  }

  // For the messages without an answer. A session that is lost has nothing left to be told.
  template <typename Request>
  void Tell(LiveSession& session, const Request& request) {
    InTurn(session, [&](MonotonicTime deadline) { return session.client->Tell(request, deadline); }).IgnoreError();
  }
};

bool IsKnown(store::KeyAnswer answer);
bool IsKnown(store::PutAnswer answer);

// Whether the daemon's list of answers fits what was asked; if not, the session is of no more use.
template <typename Answer>
absl::Status CheckAnswers(LiveSession& session, size_t asked, const std::vector<Answer>& answers) {
  if (answers.size() == asked && std::all_of(answers.begin(), answers.end(), [](Answer one) { return IsKnown(one); })) {
    return absl::OkStatus();
  }
  return session.client->Break("the daemon's answers do not fit what was asked");
}

// The sum of an object's segments, or what is wrong with them.
template <typename SegmentType>
absl::StatusOr<int64_t> SizeOf(size_t at, std::span<const SegmentType> segments) {
  int64_t size = 0;
  for (const SegmentType& segment : segments) {
    if (segment.size > static_cast<size_t>(INT64_MAX) ||
        __builtin_add_overflow(size, static_cast<int64_t>(segment.size), &size)) {
      return InvalidArgument("objects[{}] has segments of more than 2^63 - 1 bytes", at);
    }
    if (segment.data == nullptr && segment.size > 0) {
      return InvalidArgument("objects[{}] has a segment of {} bytes without data; give its address", at, segment.size);
    }
  }
  if (size == 0) return InvalidArgument("objects[{}] has 0 bytes; give segments of at least 1 byte in all", at);
  return size;
}

}  // namespace tenure::daemon
