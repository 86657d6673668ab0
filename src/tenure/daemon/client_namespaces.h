// The key prefixes of one client and its ids for them, which outlive any connection. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/daemon/session_keeper.h"
#include "tenure/store/copy_digest.h"
#include "tenure/store/namespace_table.h"
#include "tenure/store/pool.h"

namespace tenure::daemon {

class ClientNamespaces {
 public:
  static constexpr int64_t kMax = 65'536;

  ClientNamespaces() : table_(kMax) {}

  absl::StatusOr<store::NamespaceId> Open(std::string_view prefix);
  bool Contains(store::NamespaceId id) const { return table_.Contains(id); }
  // Precondition of both: Contains(id).
  uint64_t SeedOf(const store::ObjectKey& key) const {
    return store::DigestSeed(table_.TextHash(key.name_space), key.hash);
  }
  // Gives `key` the daemon's id of its namespace, which is asked for with the first use in a session.
  absl::Status ToDaemons(LiveSession& session, store::ObjectKey& key, MonotonicTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(session.turn);

 private:
  std::string PrefixOf(store::NamespaceId id) const;

  store::NamespaceTable table_;
  mutable Mutex mutex_;
  std::deque<std::string> prefixes_ ABSL_GUARDED_BY(mutex_);  // By id.
};

}  // namespace tenure::daemon
