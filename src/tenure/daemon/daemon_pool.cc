#include "tenure/daemon/daemon_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/daemon/daemon_pool_internals.h"

namespace tenure::daemon {
namespace {

using store::EntryRef;
using store::KeyAnswer;
using store::ObjectKey;

absl::Status CheckOptions(const DaemonPoolOptions& options) {
  if (options.call_deadline <= absl::ZeroDuration() || options.call_deadline > absl::Hours(1)) {
    return InvalidArgument("call_deadline is {} s; give more than 0 and at most 3600 s",
                           absl::ToDoubleSeconds(options.call_deadline));
  }
  if (options.backoff_min <= absl::ZeroDuration() || options.backoff_max < options.backoff_min ||
      options.backoff_max > absl::Hours(1)) {
    return InvalidArgument("backoff_min is {} s and backoff_max {} s; give more than 0, in this order, at most 3600 s",
                           absl::ToDoubleSeconds(options.backoff_min), absl::ToDoubleSeconds(options.backoff_max));
  }
  if (options.window_bytes < Bytes(1)) {
    return InvalidArgument("window_bytes is {}; give at least 1", options.window_bytes.value());
  }
  return absl::OkStatus();
}

// A leased object in the client's handle: the daemon's name of the lease and the session in which it means something.
EntryRef ToEntry(uint64_t lease, uint32_t epoch) {
  return {.shard = static_cast<uint32_t>(lease), .index = static_cast<uint32_t>(lease >> 32), .generation = epoch};
}
uint64_t ToLease(const EntryRef& entry) { return uint64_t{entry.index} << 32 | entry.shard; }

// Runs `one(first, count)` over [0, total) in pieces of at most a message's keys. A piece that fails ends the call: the
// rest keeps the answers it has, and only a call without any answer fails.
template <typename One>
absl::Status InPieces(size_t total, One one) {
  for (size_t first = 0; first < total; first += kMessageKeysMax) {
    const absl::Status status = one(first, std::min(kMessageKeysMax, total - first));
    if (!status.ok()) return first == 0 ? status : absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status NoDaemon() { return Unavailable("no connection to the daemon; it is tried again in the background"); }

bool IsKnown(KeyAnswer answer) { return answer >= KeyAnswer::kPresent && answer <= KeyAnswer::kUnavailable; }
bool IsKnown(store::PutAnswer answer) {
  return answer >= store::PutAnswer::kStored && answer <= store::PutAnswer::kNotStored;
}

std::shared_ptr<LiveSession> DaemonPool::Internals::Session() const {
  return getpid() == process ? keeper->Current() : nullptr;
}

absl::Status DaemonPool::Internals::CheckKey(std::string_view what, size_t at, const ObjectKey& key) const {
  if (!namespaces.Contains(key.name_space)) {
    return InvalidArgument("{}[{}] is in namespace {}, which this pool did not give out; open it first", what, at,
                           key.name_space.value());
  }
  if (key.hash.size() != 16 && key.hash.size() != 32) {
    return InvalidArgument("{}[{}] has a hash of {} bytes; give 16 or 32", what, at, key.hash.size());
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::Internals::CheckBatch(std::string_view what, size_t entries, size_t answers) const {
  if (entries > kBatchKeysMax) {
    return InvalidArgument("{} has {} entries; give at most {} in one call", what, entries, kBatchKeysMax);
  }
  if (answers != entries) {
    return InvalidArgument("answers has room for {} and {} has {} entries; give as many", answers, what, entries);
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::Internals::CheckKeys(std::span<const ObjectKey> keys, size_t answers) const {
  TENURE_RETURN_IF_ERROR(CheckBatch("keys", keys.size(), answers));
  for (size_t at = 0; at < keys.size(); ++at) TENURE_RETURN_IF_ERROR(CheckKey("keys", at, keys[at]));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DaemonPool>> DaemonPool::Connect(const DaemonPoolOptions& options, const Clock& clock) {
  TENURE_RETURN_IF_ERROR(CheckOptions(options));
  auto internals = std::make_unique<Internals>(options, clock);
  internals->process = getpid();
  TENURE_ASSIGN_OR_RETURN(internals->keeper, SessionKeeper::Start({.socket_path = options.socket_path,
                                                                   .patience = options.call_deadline,
                                                                   .backoff_min = options.backoff_min,
                                                                   .backoff_max = options.backoff_max,
                                                                   .populate = options.populate}));
  const bool closed = internals->keeper->closed();
  internals->pool_traits = {
      .name = closed ? "daemon-closed" : "daemon-independent", .closed = closed, .differences = {}};
  return std::unique_ptr<DaemonPool>(new DaemonPool(std::move(internals)));
}

DaemonPool::DaemonPool(std::unique_ptr<Internals> internals) : internals_(std::move(internals)) {}

DaemonPool::~DaemonPool() {
  if (getpid() != internals_->process) SessionKeeper::Abandon(std::move(internals_->keeper));
}

const store::PoolTraits& DaemonPool::traits() const { return internals_->pool_traits; }
bool DaemonPool::connected() const { return internals_->Session() != nullptr; }

absl::StatusOr<store::NamespaceId> DaemonPool::OpenNamespace(std::string_view prefix) {
  // A forked child may have inherited the table's lock in the hands of a thread that it does not have.
  if (getpid() != internals_->process) return NoDaemon();
  TENURE_ASSIGN_OR_RETURN(const store::NamespaceId id, internals_->namespaces.Open(prefix));
  const std::shared_ptr<LiveSession> session = internals_->Session();
  if (session == nullptr) return id;
  absl::Status told;
  internals_
      ->InTurn(*session,
               [&](MonotonicTime deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                 ObjectKey key{.name_space = id, .hash = {}};
                 return told = internals_->namespaces.ToDaemons(*session, key, deadline);
               })
      .IgnoreError();  // A daemon that is not there is asked again with the first key.
  if (absl::IsResourceExhausted(told)) return told;
  return id;
}

absl::Status DaemonPool::Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers.size()));
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  ProbeRequest request;
  ProbeReply reply;
  return InPieces(keys.size(), [&](size_t first, size_t count) -> absl::Status {
    TENURE_ASSIGN_OR_RETURN(const auto session, internals_->AskKeys(keys.subspan(first, count), request, reply));
    TENURE_RETURN_IF_ERROR(CheckAnswers(*session, count, reply.answers));
    std::copy(reply.answers.begin(), reply.answers.end(), answers.begin() + static_cast<ptrdiff_t>(first));
    return absl::OkStatus();
  });
}

absl::StatusOr<store::Lease> DaemonPool::AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                                      std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers.size()));
  if (ttl <= absl::ZeroDuration() || ttl > kLeaseTtlMax) {
    return InvalidArgument("ttl is {} s; give more than 0 and at most {} s", absl::ToDoubleSeconds(ttl),
                           absl::ToInt64Seconds(kLeaseTtlMax));
  }
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  // The daemon counts from a later instant, so that the promise ends here first.
  const MonotonicTime deadline = internals_->clock.Now() + ttl;
  std::vector<EntryRef> entries;
  entries.reserve(keys.size());
  LeaseRequest request{.ttl_nanoseconds = absl::ToInt64Nanoseconds(ttl), .keys = {}};
  LeaseReply reply;
  const absl::Status status = InPieces(keys.size(), [&](size_t first, size_t count) -> absl::Status {
    TENURE_ASSIGN_OR_RETURN(const auto session, internals_->AskKeys(keys.subspan(first, count), request, reply));
    TENURE_RETURN_IF_ERROR(CheckAnswers(*session, count, reply.answers));
    std::copy(reply.answers.begin(), reply.answers.end(), answers.begin() + static_cast<ptrdiff_t>(first));
    const auto leased = std::count(reply.answers.begin(), reply.answers.end(), KeyAnswer::kPresent);
    entries.insert(entries.end(), static_cast<size_t>(leased), ToEntry(reply.lease, session->epoch));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return store::Lease(this, std::move(entries), deadline);
}

void DaemonPool::ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) {
  if (getpid() != internals_->process || internals_->clock.Now() >= deadline) return;
  const std::shared_ptr<LiveSession> session = internals_->Session();
  if (session == nullptr) return;
  ReleaseLeaseRequest request;
  for (const EntryRef& entry : entries) {
    // The objects of one message stand together. A lease of an earlier session went with it.
    const uint64_t lease = ToLease(entry);
    const bool told = !request.leases.empty() && request.leases.back() == lease;
    if (entry.generation == session->epoch && !told) request.leases.push_back(lease);
  }
  if (!request.leases.empty()) internals_->Tell(*session, request);
}

absl::Status DaemonPool::Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers.size()));
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  RemoveRequest request;
  RemoveReply reply;
  return InPieces(keys.size(), [&](size_t first, size_t count) -> absl::Status {
    TENURE_ASSIGN_OR_RETURN(const auto session, internals_->AskKeys(keys.subspan(first, count), request, reply));
    TENURE_RETURN_IF_ERROR(CheckAnswers(*session, count, reply.answers));
    std::copy(reply.answers.begin(), reply.answers.end(), answers.begin() + static_cast<ptrdiff_t>(first));
    return absl::OkStatus();
  });
}

absl::StatusOr<int64_t> DaemonPool::Clear(std::optional<store::NamespaceId> name_space) {
  if (name_space.has_value() && !internals_->namespaces.Contains(*name_space)) {
    return InvalidArgument("name_space is {}, which this pool did not give out; open it first", name_space->value());
  }
  const std::shared_ptr<LiveSession> session = internals_->Session();
  if (session == nullptr) return NoDaemon();
  ClearReply reply;
  const absl::Status status =
      internals_->InTurn(*session, [&](MonotonicTime deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
        ObjectKey key{.name_space = name_space.value_or(store::NamespaceId()), .hash = {}};
        if (name_space.has_value()) TENURE_RETURN_IF_ERROR(internals_->namespaces.ToDaemons(*session, key, deadline));
        const ClearRequest request{.one_namespace = name_space.has_value() ? uint8_t{1} : uint8_t{0},
                                   .name_space = key.name_space.value()};
        return session->client->Call(request, deadline, reply);
      });
  if (!status.ok()) return status;
  return reply.objects;
}

store::PoolStats DaemonPool::Stats() const {
  // A forked child has no lock that it can trust and no daemon to ask.
  if (getpid() != internals_->process) return {};
  StatsReply reply;
  if (const std::shared_ptr<LiveSession> session = internals_->Session()) {
    const absl::Status status =
        internals_->InTurn(*session, [&](MonotonicTime deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return session->client->Call(StatsRequest(), deadline, reply);
        });
    MutexLock lock(internals_->stats_mutex);
    if (status.ok()) internals_->last_stats = reply.stats;
  }
  MutexLock lock(internals_->stats_mutex);
  return internals_->last_stats;
}

}  // namespace tenure::daemon
