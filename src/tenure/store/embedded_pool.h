// The embedded pool: a sharded index over slabs of memory, in this process (design §4).
//
// The shell: it owns the clock, locks shards one at a time and never two, and copies outside every lock. The rules live
// in the shard core. All memory is taken in Create. Thread-safe; outlives its leases, reservations and pins.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/store/eviction_policy.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"
#include "tenure/store/reservation.h"

namespace tenure::store {

enum class PoolMode : uint8_t {
  kIndependent,  // Objects stand alone; PutObject.parent is ignored.
  kClosed,       // Dependent objects: an object leaves only when it has no children.
};

enum class MemoryKind : uint8_t {
  kMapped,   // Real bytes, mapped and touched in Create.
  kVirtual,  // Slots without bytes, for simulation: puts and gets move nothing.
};

struct EmbeddedPoolOptions {
  Bytes capacity;                       // Whole pool, rounded down to whole slabs; at least one slab.
  Bytes slab_bytes{int64_t{64} << 20};  // A slab is cut for one exact object size, the largest possible object.
  PoolMode mode = PoolMode::kClosed;
  MemoryKind memory = MemoryKind::kMapped;
  int64_t objects_max = 0;   // Entries of the index; 0: capacity / 16 KiB, at least 1,024.
  bool index_grows = false;  // Take index memory as objects come instead of all of it in Create (simulation).
  int shards = 64;           // A power of two, 1 to 1,024.
  int64_t namespaces_max = 65'536;
  int64_t object_sizes_max = 64;  // Distinct object sizes with slabs at one time; a put of one more is refused as full.
  double high_watermark = 0.95;   // Used share of capacity above which a pass starts.
  double low_watermark = 0.855;   // Where the pass ends.
  int64_t pass_step_objects_max = 256;             // Victims a step.
  double waiting_share_max = 0.02;                 // Of capacity, for objects without their parent.
  absl::Duration waiting_ttl = absl::Seconds(10);  // How long such an object waits.
  std::shared_ptr<const EvictionPolicy> policy;    // Null: MakeLruPolicy().
};

class EmbeddedPool final : public Pool {
 public:
  // InvalidArgument names the option. Takes all memory of the pool, and of its index unless `index_grows`. `clock`
  // outlives the pool.
  static absl::StatusOr<std::unique_ptr<EmbeddedPool>> Create(EmbeddedPoolOptions options, const Clock& clock);
  ~EmbeddedPool() override;

  const PoolTraits& traits() const override;
  absl::StatusOr<NamespaceId> OpenNamespace(std::string_view prefix) override;
  absl::Status Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override;
  absl::StatusOr<Lease> AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                     std::span<KeyAnswer> answers) override;
  absl::Status Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) override;
  absl::Status Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) override;
  absl::Status Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override;
  absl::StatusOr<int64_t> Clear(std::optional<NamespaceId> name_space) override;
  // Reads counters, one shard locked at a time; its time does not grow with the objects.
  PoolStats Stats() const override;

  // A put in two steps, for a writer that copies by itself. One result an object, in their order: valid where `answers`
  // says kStored, or kWaiting (its parent is not there). Only the sizes of the segments are read. Two equal keys in a
  // batch: the second is kBusy.
  absl::StatusOr<std::vector<Reservation>> Reserve(std::span<const PutObject> objects, std::span<PutAnswer> answers);
  // Publishes what was written: kStored, kWaiting, or kNotStored (removed with its parent meanwhile). `digest`: see
  // copy_digest.h.
  PutAnswer Commit(Reservation reservation, uint64_t digest);
  // A get in two steps: one result a key, valid where `answers` says kPresent. The reader compares the digest of its
  // own copy and reports a difference with RemoveCorrupt.
  absl::StatusOr<std::vector<PinnedObject>> Pin(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers);
  // For a reader whose copy did not compare: counts the failure and removes, with its descendants, the very object that
  // is pinned. A later object under its key stays, so two readers of one bad object take no good one away. The pin
  // stays.
  void RemoveCorrupt(const PinnedObject& pin);
  // The seed of the key's digests. The namespace must be one that this pool gave out.
  uint64_t DigestSeedOf(const ObjectKey& key) const;

  // One bounded step of what is due: waiting puts that ran out, then the pending watermark pass. True when more is
  // left. The owner calls it: a MaintenanceThread, or a simulator in its own time.
  bool Maintain();

 private:
  struct Internals;
  friend class Reservation;
  friend class PinnedObject;

  explicit EmbeddedPool(std::unique_ptr<Internals> internals);
  void ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) override;

  std::unique_ptr<Internals> internals_;
};

}  // namespace tenure::store
