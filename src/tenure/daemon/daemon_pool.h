// The pool of this machine's daemon, seen from a client: the contract of store/pool.h over a socket and shared memory.
//
// One connection, kept by a thread of its own that reconnects after a loss. While there is none, and when the daemon
// does not answer within call_deadline, keys are misses: a call that no key of which was answered returns Unavailable
// (its answers say kUnavailable or kNotStored), otherwise the keys that were not answered say so. Copies run in the
// calling thread, outside of any lock, and their time does not count against the deadline. Thread-safe. In a forked
// child every call is such a miss; the child may destroy the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"

namespace tenure::daemon {

struct DaemonPoolOptions {
  std::string socket_path;  // As given to `tenure serve --socket`.
  absl::Duration call_deadline =
      absl::Seconds(2);  // For each exchange with the daemon, waiting for other threads' included.
  absl::Duration backoff_min =
      absl::Milliseconds(50);  // Pause between attempts to reconnect; doubles up to backoff_max.
  absl::Duration backoff_max = absl::Seconds(2);
  Bytes window_bytes{int64_t{64} << 20};  // Reserved or pinned by one call at one time, when the daemon allows so much.
  bool populate = true;  // Map all of the pool's pages in the background after connecting (2 MiB of page table
                         // per GiB) instead of one by one during the first copies.
};

class DaemonPool final : public store::Pool {
 public:
  // Connects once, so that a wrong path is known at start: InvalidArgument names the option, Unavailable the socket
  // that nobody serves, PermissionDenied the user, FailedPrecondition both versions. `clock` counts leases and outlives
  // the pool; waiting is measured with the machine's.
  static absl::StatusOr<std::unique_ptr<DaemonPool>> Connect(const DaemonPoolOptions& options, const Clock& clock);
  ~DaemonPool() override;

  const store::PoolTraits& traits() const override;
  // Also while the daemon is away: ids are this client's and survive a reconnect.
  absl::StatusOr<store::NamespaceId> OpenNamespace(std::string_view prefix) override;
  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override;
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override;
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override;
  absl::Status Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<int64_t> Clear(std::optional<store::NamespaceId> name_space) override;
  // The pool's figures, of all its clients; while the daemon is away the last ones seen.
  store::PoolStats Stats() const override;

  // Whether calls reach a daemon now.
  bool connected() const;

 private:
  struct Internals;
  class PutCall;
  class GetCall;

  explicit DaemonPool(std::unique_ptr<Internals> internals);
  void ReleaseLease(std::span<const store::EntryRef> entries, MonotonicTime deadline) override;

  std::unique_ptr<Internals> internals_;
};

}  // namespace tenure::daemon
