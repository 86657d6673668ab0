// Where KV objects live: the contract that every pool keeps (embedded, daemon, Mooncake). ARCHITECTURE.md, "The pool
// contract".
//
// Every call takes a batch and answers per key, in the order of the keys. A miss, a full pool and an expired lease are
// answers. A call returns a status only for bad input (InvalidArgument: the text names the argument and nothing has
// changed) or when the pool cannot be reached (Unavailable). All methods may be called from any thread. A pool outlives
// the leases it gave out. The rules are numbered as in the contract and tested by tests/conformance against every pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/kv/object_key.h"
#include "tenure/store/lease.h"

namespace tenure::store {

using kv::NamespaceId;
using kv::ObjectKey;

// One answer to probe, lease, get and remove.
enum class KeyAnswer : int8_t {
  kPresent,  // probe: readable; lease: leased; get: the bytes were copied and verified; remove: it was there, and is
             // gone.
  kAbsent,   // A miss, whatever its cause: never stored, evicted, still being written, waiting for a parent, digest
             // failed.
  kSizeDiffers,  // get only: the buffers do not hold exactly the object's size; nothing was copied.
  kUnavailable,  // The pool did not answer for this key within its deadline.
};
std::string_view ToString(KeyAnswer answer);

enum class PutAnswer : int8_t {
  kStored,          // Complete and visible.
  kExists,          // Present with this size: bytes and recency unchanged.
  kSizeDiffers,     // Present with another size: unchanged.
  kBusy,            // Another writer has this key open.
  kWaiting,         // Complete but invisible until its parent is there (closed pools), for a bounded time.
  kRefusedFull,     // No room: everything that could leave is leased, pinned or being written. See PoolStats.refused.
  kRefusedIndex,    // No room for another entry (objects_max).
  kRefusedWaiting,  // The share of the pool for objects without a parent is used up.
  kRefusedSize,     // Larger than this pool can hold at all.
  kNotStored,       // The pool could not tell why, but a probe afterwards says absent.
};
std::string_view ToString(PutAnswer answer);
// Only these advance a saver's offset.
inline bool IsKept(PutAnswer answer) { return answer == PutAnswer::kStored || answer == PutAnswer::kExists; }

// What an eviction policy may know of an object's group.
enum class ObjectKind : uint8_t { kFull, kWindow, kState, kChunked, kOther };

// A piece of memory of the caller. On a pool without bytes (MemoryKind::kVirtual) `data` may be null and is never read.
struct ConstSegment {
  const std::byte* data = nullptr;
  size_t size = 0;
};
struct Segment {
  std::byte* data = nullptr;
  size_t size = 0;
};

struct PutObject {
  ObjectKey key;
  std::span<const ConstSegment> segments;  // The object is their concatenation; its size, their sum, is at least 1.
  // Closed pools: the object without which this one is useless (design: the preceding chunk of a full-attention chain;
  // for other kinds the full-attention chunk that covers its last token). Independent pools ignore it.
  std::optional<ObjectKey> parent = std::nullopt;
  ObjectKind kind = ObjectKind::kOther;
};

struct GetObject {
  ObjectKey key;
  std::span<const Segment> segments;  // Their sum must be the object's size.
};

// Objects and bytes that stand in the way of eviction, or of a put, by reason.
struct HeldCounts {
  int64_t leased = 0;
  int64_t pinned = 0;   // Being read, removed ones included.
  int64_t writing = 0;  // Reserved, not yet committed.
  int64_t waiting = 0;  // Complete, waiting for a parent.
  int64_t parents = 0;  // Have children; the put of a child counts from its start.
};

// A snapshot; each figure is exact at some instant of the call. Counters never fall.
struct PoolStats {
  Bytes capacity;
  Bytes used;           // Slots of objects in any state.
  int64_t objects = 0;  // Visible.
  int64_t namespaces = 0;
  HeldCounts held;    // Now, in objects; a lease that has run out is not counted, although no call has met it since.
  Bytes index_bytes;  // Memory of the index itself.

  int64_t probed_keys_total = 0;
  int64_t probe_hits_total = 0;
  int64_t leased_keys_total = 0;  // Answers "leased".
  int64_t lease_misses_total = 0;
  int64_t stored_total = 0;
  Bytes stored_bytes_total;
  int64_t exists_total = 0;
  int64_t gets_total = 0;
  int64_t get_misses_total = 0;
  int64_t checksum_failures_total = 0;
  int64_t evicted_total = 0;
  Bytes evicted_bytes_total;
  int64_t evicted_waiting_total = 0;  // Waiting objects whose parent did not come in time, or that made room.
  int64_t removed_total = 0;
  int64_t passes_total = 0;  // Watermark passes started.
  int64_t recut_slabs_total = 0;
  // Puts that were refused, and what held the room at those instants, summed.
  int64_t refused_full_total = 0;
  int64_t refused_index_total = 0;
  int64_t refused_waiting_total = 0;
  int64_t refused_size_total = 0;
  HeldCounts refused_by;
};

// A contract rule that a pool does not keep as written; the conformance suite then tests the stated difference instead.
enum class Difference : uint8_t {
  kOneLeaseTtl,      // Rules 2, 7: one TTL for all, no release.
  kNoPin,            // Rule 3: a get whose lease ran out is a miss.
  kNotStoredAnswer,  // Rules 4, 9: a put that met another writer answers kNotStored.
  kNoChecksum,       // Rule 5.
  kOwnWatermark,     // Rule 6.
};

struct PoolTraits {
  std::string name;
  // A present object implies that its ancestors are present, and a leased one that they stay (design §4, dependent
  // objects).
  bool closed = false;
  // A call costs as much as hundreds of keys in it, so searches make fewer and larger ones.
  bool dear_rounds = false;
  std::vector<Difference> differences;
};

class Pool : public LeaseReleaser {
 public:
  // Namespaces, keys and TTLs above these are bad input.
  static constexpr size_t kNamespaceNameMax = 1024;         // Bytes of a key prefix.
  static constexpr size_t kBatchKeysMax = size_t{1} << 24;  // Keys in one call.
  static constexpr absl::Duration kLeaseTtlMax = absl::Hours(24);

  virtual const PoolTraits& traits() const = 0;

  // The id of a key prefix, the same for the same text. ResourceExhausted beyond the pool's maximum. 1 to
  // kNamespaceNameMax bytes, no NUL.
  virtual absl::StatusOr<NamespaceId> OpenNamespace(std::string_view prefix) = 0;

  // Rule 1: changes nothing that eviction or a lease reads. `answers` has the size of `keys`.
  virtual absl::Status Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) = 0;

  // Rule 2: each present key stays until max(old deadline, now + ttl) and moves to the hot end; absent keys get no
  // lease. The handle holds what was leased until it is released or destroyed, or its deadline passes. 0 < ttl <=
  // kLeaseTtlMax.
  virtual absl::StatusOr<Lease> AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                             std::span<KeyAnswer> answers) = 0;

  // Rules 4, 8. Two equal keys in one batch: the second is kExists.
  virtual absl::Status Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) = 0;

  // Rules 3, 5.
  virtual absl::Status Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) = 0;

  // Rule 9: absent at once, descendants too, leased or not.
  virtual absl::Status Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) = 0;
  // Every object of the namespace, or of all; returns how many were visible.
  virtual absl::StatusOr<int64_t> Clear(std::optional<NamespaceId> name_space) = 0;

  virtual PoolStats Stats() const = 0;
};

}  // namespace tenure::store
