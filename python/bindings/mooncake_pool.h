// A Mooncake store as a pool: the contract of store/pool.h with its declared differences, keys byte for byte as stock
// connectors write them.
//
// Every call but the two Blocking ones answers within its timeout: Mooncake is called on threads of the pool's own
// (one for questions, one for copies), and what comes late is dropped. Bytes go through staging buffers, so a late copy
// touches no memory of a caller; a device's go past them (direct_mooncake.h). Thread-safe; call without the
// interpreter's lock. Behaviour of Mooncake: mooncake_store spec §1 to §3.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bindings/call_lane.h"
#include "bindings/call_threads.h"
#include "bindings/mooncake_client.h"
#include "bindings/mooncake_copy.h"
#include "bindings/mooncake_keys.h"
#include "bindings/staging_buffers.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/base/units.h"
#include "tenure/store/namespace_table.h"
#include "tenure/store/pool.h"

namespace tenure::python {

struct MooncakePoolOptions {
  absl::Duration setup_timeout = absl::Seconds(30);     // For Mooncake's setup, once.
  absl::Duration call_timeout = absl::Seconds(2);       // Probe, lease, remove: the whole call.
  absl::Duration transfer_timeout = absl::Seconds(10);  // Put, get: each part of at most staging_bytes.
  // The master's default_kv_lease_ttl, which no client can ask for: how long a lease of this pool holds.
  absl::Duration lease_ttl = absl::Seconds(10);
  // A transfer that failed after so long may still move bytes, and its memory is kept from others for late_bytes_max.
  absl::Duration given_up_after = absl::Seconds(25);
  absl::Duration late_bytes_max = absl::Seconds(45);
  Bytes staging_bytes{int64_t{64} << 20};  // One of the two staging buffers; the largest object.
};

class MooncakePool final : public store::Pool {
 public:
  static constexpr int64_t kNamespacesMax = 65'536;

  // Sets the client up with `setup_arguments`. Unavailable when Mooncake refuses or does not answer in time. With the
  // interpreter's lock held, which is given up while it waits.
  static absl::StatusOr<std::unique_ptr<MooncakePool>> Create(std::shared_ptr<MooncakeClient> client,
                                                              const nanobind::tuple& setup_arguments,
                                                              const MooncakePoolOptions& options);
  ~MooncakePool() override { End(); }

  // Closes the store after the calls under way, and waits for the pool's threads; later calls are Unavailable. A pool
  // that others still hold must be ended while the interpreter lives, since its threads need the interpreter's lock.
  // Idempotent; with or without the lock.
  void End();

  const store::PoolTraits& traits() const override { return traits_; }
  absl::StatusOr<store::NamespaceId> OpenNamespace(std::string_view prefix) override;
  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  // Holds what it leased for the master's TTL, whatever `ttl` says; its handle's deadline is the earlier of both.
  absl::StatusOr<store::Lease> AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                            std::span<store::KeyAnswer> answers) override;
  // A key that is present is not put again; its size is asked for, which leases it.
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override;
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override;
  absl::Status Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::StatusOr<int64_t> Clear(std::optional<store::NamespaceId> name_space) override;
  // The same in the calling thread, for as long as Mooncake takes; where the keys are many, half of them go on another
  // thread at the same time. End does not wait for them: the last of them closes the store. For threads that may be
  // left behind (left_behind.h), which they mark.
  absl::Status ProbeBlocking(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers);
  absl::StatusOr<store::Lease> AcquireLeaseBlocking(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                                    std::span<store::KeyAnswer> answers);
  // What this client did; what the store holds, only its master knows.
  store::PoolStats Stats() const override;

  // For those who make Mooncake's calls themselves (direct_mooncake.h).
  const MooncakePoolOptions& options() const { return options_; }
  // Unavailable after End.
  absl::StatusOr<std::shared_ptr<MooncakeClient>> Client() const;
  // The client and the keys; their pieces are the caller's to append.
  absl::StatusOr<MooncakeBatch> BatchOf(std::span<const store::ObjectKey> keys) const;
  // On the lane of questions, as CallLane::Run; and to its end, as CallThreads::Run.
  absl::Status Run(absl::Duration timeout, std::function<absl::Status()> call) {
    return questions_.Run(timeout, std::move(call));
  }
  absl::Status RunToItsEnd(std::function<absl::Status()> call) { return endless_.Run(std::move(call)); }
  void CountPuts(std::span<const store::PutObject> objects, std::span<const store::PutAnswer> answers);
  void CountGets(std::span<const store::KeyAnswer> answers);

 private:
  struct Counters {
    std::atomic<int64_t> probed{0}, probe_hits{0}, leased{0}, lease_misses{0}, stored{0}, stored_bytes{0}, exists{0};
    std::atomic<int64_t> gets{0}, get_misses{0}, removed{0}, refused_full{0};
  };
  using Codes = std::vector<int64_t>;
  using Question = absl::StatusOr<Codes> (MooncakeClient::*)(const MooncakeKeys&);
  enum class Thread : uint8_t { kLane, kCallers };

  MooncakePool(std::shared_ptr<MooncakeClient> client, std::shared_ptr<StagingBuffers> staging,
               const MooncakePoolOptions& options);
  void ReleaseLease(std::span<const store::EntryRef> entries, MonotonicTime deadline) override;

  absl::StatusOr<MooncakeKeys> KeysOf(std::span<const store::ObjectKey> keys) const;
  // Asks `question` about the keys, on the lane of questions or in the calling thread.
  absl::StatusOr<Codes> Ask(Question question, std::span<const store::ObjectKey> keys, Thread thread);
  // In the calling thread, and where the keys are many half of them on `halves_` at the same time.
  absl::StatusOr<Codes> AskHere(Question question, std::span<const store::ObjectKey> keys);
  absl::StatusOr<Codes> AskInHalves(Question question, std::span<const store::ObjectKey> keys);
  absl::Status ProbeOn(Thread thread, std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers);
  absl::StatusOr<store::Lease> AcquireLeaseOn(Thread thread, std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                              std::span<store::KeyAnswer> answers);
  // Objects [begin, end) fit a staging buffer together; end > begin.
  template <typename Object>
  size_t PartEnd(std::span<const Object> objects, size_t begin) const;
  template <typename Object>
  absl::StatusOr<MooncakeBatch> StagedBatch(std::span<const Object> objects) const;
  // Within transfer_timeout, on the lane of copies.
  template <typename MooncakeCopy>
  absl::Status RunStaged(const std::shared_ptr<MooncakeCopy>& copy);
  absl::Status PutPart(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers);
  absl::Status GetPart(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers);

  const MooncakePoolOptions options_;
  const store::PoolTraits traits_;
  const MonotonicClock clock_;
  const std::shared_ptr<StagingBuffers> staging_;
  mutable Mutex mutex_;
  std::shared_ptr<MooncakeClient> client_ ABSL_GUARDED_BY(mutex_);  // Null after End.
  store::NamespaceTable namespaces_;
  // By namespace id; shared with calls that outlast this.
  const std::shared_ptr<MooncakePrefixes> prefixes_ = std::make_shared<MooncakePrefixes>();
  Counters counters_;
  CallLane questions_{"Mooncake"};
  CallLane copies_{"Mooncake (copies)"};
  CallLane halves_{"Mooncake (second half)"};
  CallThreads endless_{"Mooncake (device copies)"};
};

}  // namespace tenure::python
