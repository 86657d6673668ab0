#include "tenure/store/embedded_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/store/copy_digest.h"
#include "tenure/store/namespace_table.h"
#include "tenure/store/pool_engine.h"

namespace tenure::store {
namespace {

constexpr int64_t kBytesPerObjectGuess = int64_t{16} << 10;  // For objects_max = 0.
constexpr int64_t kObjectsMaxLeast = 1024;
constexpr int kShardsMax = 1024;
constexpr int64_t kSlabBytesMax = int64_t{2} << 30;  // Object sizes are kept in 32 bits.
constexpr int64_t kSlabsMax = int64_t{1} << 30;
constexpr int64_t kNamespacesMax = int64_t{1} << 24;
constexpr int64_t kObjectSizesMax = 65'535;

absl::Status CheckOptions(const EmbeddedPoolOptions& options) {
  if (options.slab_bytes < Bytes(1) || options.slab_bytes.value() > kSlabBytesMax) {
    return InvalidArgument("slab_bytes is {}; give 1 to {}", options.slab_bytes.value(), kSlabBytesMax);
  }
  if (options.capacity < options.slab_bytes || options.capacity / options.slab_bytes > kSlabsMax) {
    return InvalidArgument("capacity is {}; give at least one slab of {} bytes and at most {} slabs",
                           options.capacity.value(), options.slab_bytes.value(), kSlabsMax);
  }
  if (options.objects_max < 0 || options.objects_max > kEntriesMax / 2) {
    return InvalidArgument("objects_max is {}; give 0 (capacity / 16 KiB) to {}", options.objects_max, kEntriesMax / 2);
  }
  if (options.shards < 1 || options.shards > kShardsMax ||
      !std::has_single_bit(static_cast<unsigned>(options.shards))) {
    return InvalidArgument("shards is {}; give a power of two, 1 to {}", options.shards, kShardsMax);
  }
  if (options.namespaces_max < 1 || options.namespaces_max > kNamespacesMax) {
    return InvalidArgument("namespaces_max is {}; give 1 to {}", options.namespaces_max, kNamespacesMax);
  }
  if (options.object_sizes_max < 1 || options.object_sizes_max > kObjectSizesMax) {
    return InvalidArgument("object_sizes_max is {}; give 1 to {}", options.object_sizes_max, kObjectSizesMax);
  }
  if (!(options.high_watermark > 0 && options.high_watermark <= 1)) {
    return InvalidArgument("high_watermark is {}; give a share of capacity, above 0 and at most 1",
                           options.high_watermark);
  }
  if (!(options.low_watermark >= 0 && options.low_watermark <= options.high_watermark)) {
    return InvalidArgument("low_watermark is {}; give 0 to high_watermark ({})", options.low_watermark,
                           options.high_watermark);
  }
  if (options.pass_step_objects_max < 1) {
    return InvalidArgument("pass_step_objects_max is {}; give at least 1", options.pass_step_objects_max);
  }
  if (!(options.waiting_share_max >= 0 && options.waiting_share_max <= 1)) {
    return InvalidArgument("waiting_share_max is {}; give a share of capacity, 0 to 1", options.waiting_share_max);
  }
  if (options.waiting_ttl <= absl::ZeroDuration() || options.waiting_ttl > Pool::kLeaseTtlMax) {
    return InvalidArgument("waiting_ttl is {} s; give more than 0 and at most {} s",
                           absl::ToDoubleSeconds(options.waiting_ttl), absl::ToInt64Seconds(Pool::kLeaseTtlMax));
  }
  return absl::OkStatus();
}

// Below 0 when the sum is 2^63 or more.
template <typename Segments>
Bytes SizeOf(const Segments& segments) {
  int64_t size = 0;
  for (const auto& segment : segments) {
    if (__builtin_add_overflow(size, segment.size, &size)) return Bytes(-1);
  }
  return Bytes(size);
}

}  // namespace

struct EmbeddedPool::Internals {
  EmbeddedPoolOptions options;
  PoolTraits pool_traits;
  const Clock* clock;
  std::unique_ptr<PoolEngine> engine;
  NamespaceTable namespaces;
  std::atomic<int64_t> checksum_failures{0};

  absl::Status CheckKey(std::string_view what, size_t at, const ObjectKey& key) const {
    if (!namespaces.Contains(key.name_space)) {
      return InvalidArgument("{}[{}] is in namespace {}, which this pool did not give out; open it first", what, at,
                             key.name_space.value());
    }
    if (key.hash.size() != 16 && key.hash.size() != 32) {
      return InvalidArgument("{}[{}] has a hash of {} bytes; give 16 or 32", what, at, key.hash.size());
    }
    return absl::OkStatus();
  }

  template <typename Items, typename Answers>
  absl::Status CheckBatch(std::string_view what, const Items& items, const Answers& answers) const {
    if (items.size() > kBatchKeysMax) {
      return InvalidArgument("{} has {} entries; give at most {} in one call", what, items.size(), kBatchKeysMax);
    }
    if (answers.size() != items.size()) {
      return InvalidArgument("answers has room for {} and {} has {} entries; give as many", answers.size(), what,
                             items.size());
    }
    return absl::OkStatus();
  }

  template <typename Answers>
  absl::Status CheckKeys(std::span<const ObjectKey> keys, const Answers& answers) const {
    TENURE_RETURN_IF_ERROR(CheckBatch("keys", keys, answers));
    for (size_t at = 0; at < keys.size(); ++at) {
      // The check of every key of a batch costs as much as its probe, so the good case is decided here.
      if (namespaces.Contains(keys[at].name_space) && (keys[at].hash.size() == 32 || keys[at].hash.size() == 16))
        continue;
      return CheckKey("keys", at, keys[at]);
    }
    return absl::OkStatus();
  }

  template <typename Objects>
  absl::Status CheckSegments(const Objects& objects, bool read_data) const {
    for (size_t at = 0; at < objects.size(); ++at) {
      TENURE_RETURN_IF_ERROR(CheckKey("objects", at, objects[at].key));
      const Bytes size = SizeOf(objects[at].segments);
      if (size < Bytes(0))
        return InvalidArgument("objects[{}] has segments of 2^63 bytes or more in all; give fewer", at);
      if (size == Bytes(0)) {
        return InvalidArgument("objects[{}] has 0 bytes; give segments of at least 1 byte in all", at);
      }
      if (!read_data || options.memory == MemoryKind::kVirtual) continue;
      for (const auto& segment : objects[at].segments) {
        if (segment.data == nullptr && segment.size > 0) {
          return InvalidArgument("objects[{}] has a segment of {} bytes without data; give its address", at,
                                 segment.size);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckPut(std::span<const PutObject> objects, std::span<PutAnswer> answers, bool read_data) const {
    TENURE_RETURN_IF_ERROR(CheckBatch("objects", objects, answers));
    TENURE_RETURN_IF_ERROR(CheckSegments(objects, read_data));
    if (options.mode == PoolMode::kIndependent) return absl::OkStatus();
    for (size_t at = 0; at < objects.size(); ++at) {
      if (objects[at].parent.has_value())
        TENURE_RETURN_IF_ERROR(CheckKey("parent of objects", at, *objects[at].parent));
    }
    return absl::OkStatus();
  }

  uint64_t SeedOf(const ObjectKey& key) const { return DigestSeed(namespaces.TextHash(key.name_space), key.hash); }

  PoolEngine::Reserved Reserve(const PutObject& object, MonotonicTime now) {
    const bool closed = options.mode == PoolMode::kClosed;
    return engine->Reserve({.key = &object.key,
                            .size = SizeOf(object.segments),
                            .kind = object.kind,
                            .parent = closed && object.parent.has_value() ? &*object.parent : nullptr},
                           now);
  }

  PutAnswer PutOne(const PutObject& object) {
    const PoolEngine::Reserved reserved = Reserve(object, clock->Now());
    if (reserved.memory.size == Bytes(0)) return reserved.answer;
    uint64_t digest = 0;
    if (reserved.memory.address != nullptr) {
      digest = GatherWithDigest(SeedOf(object.key), object.segments, reserved.memory.address);
    }
    return engine->Commit(reserved.entry, digest, clock->Now());
  }

  void RemoveCorrupt(EntryId entry) {
    checksum_failures.fetch_add(1, std::memory_order_relaxed);
    engine->RemoveEntry(entry);
  }

  KeyAnswer GetOne(const GetObject& object) {
    const PoolEngine::Pinned pinned = engine->Pin(object.key);
    if (pinned.entry == kNoEntry) return KeyAnswer::kAbsent;
    KeyAnswer answer = KeyAnswer::kPresent;
    if (pinned.memory.size != SizeOf(object.segments)) {
      answer = KeyAnswer::kSizeDiffers;
    } else if (pinned.memory.address != nullptr &&
               ScatterWithDigest(SeedOf(object.key), pinned.memory.address, object.segments) != pinned.digest) {
      RemoveCorrupt({pinned.entry, pinned.generation});
      answer = KeyAnswer::kAbsent;
    }
    engine->Unpin(pinned.entry);
    return answer;
  }
};

absl::StatusOr<std::unique_ptr<EmbeddedPool>> EmbeddedPool::Create(EmbeddedPoolOptions options, const Clock& clock) {
  TENURE_RETURN_IF_ERROR(CheckOptions(options));
  if (options.objects_max == 0) {
    options.objects_max =
        std::clamp(options.capacity.value() / kBytesPerObjectGuess, kObjectsMaxLeast, kEntriesMax / 2);
  }
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<PoolEngine> engine, PoolEngine::Create(options, clock.Now()));
  const bool closed = options.mode == PoolMode::kClosed;
  PoolTraits traits;
  traits.name = closed ? "embedded-closed" : "embedded-independent";
  traits.closed = closed;
  const int64_t namespaces_max = options.namespaces_max;
  return std::unique_ptr<EmbeddedPool>(new EmbeddedPool(std::unique_ptr<Internals>(new Internals{
      .options = std::move(options),
      .pool_traits = std::move(traits),
      .clock = &clock,
      .engine = std::move(engine),
      .namespaces = NamespaceTable(namespaces_max),
  })));
}

EmbeddedPool::EmbeddedPool(std::unique_ptr<Internals> internals) : internals_(std::move(internals)) {}
EmbeddedPool::~EmbeddedPool() = default;

const PoolTraits& EmbeddedPool::traits() const { return internals_->pool_traits; }

absl::StatusOr<NamespaceId> EmbeddedPool::OpenNamespace(std::string_view prefix) {
  return internals_->namespaces.Open(prefix);
}

absl::Status EmbeddedPool::Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers));
  internals_->engine->Probe(keys, answers);
  return absl::OkStatus();
}

absl::StatusOr<Lease> EmbeddedPool::AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                                 std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers));
  if (ttl <= absl::ZeroDuration() || ttl > kLeaseTtlMax) {
    return InvalidArgument("ttl is {} s; give more than 0 and at most {} s", absl::ToDoubleSeconds(ttl),
                           absl::ToInt64Seconds(kLeaseTtlMax));
  }
  const MonotonicTime now = internals_->clock->Now();
  const MonotonicTime deadline = now + ttl;
  std::vector<EntryRef> leased;
  leased.reserve(keys.size());
  internals_->engine->Lease(keys, now, deadline, answers, leased);
  return Lease(this, std::move(leased), deadline);
}

void EmbeddedPool::ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) {
  const MonotonicTime now = internals_->clock->Now();
  if (now < deadline) internals_->engine->Release(entries, now);
}

absl::Status EmbeddedPool::Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckPut(objects, answers, true));
  for (size_t at = 0; at < objects.size(); ++at) answers[at] = internals_->PutOne(objects[at]);
  return absl::OkStatus();
}

absl::Status EmbeddedPool::Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckBatch("objects", objects, answers));
  TENURE_RETURN_IF_ERROR(internals_->CheckSegments(objects, true));
  for (size_t at = 0; at < objects.size(); ++at) answers[at] = internals_->GetOne(objects[at]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Reservation>> EmbeddedPool::Reserve(std::span<const PutObject> objects,
                                                               std::span<PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckPut(objects, answers, false));
  std::vector<Reservation> reservations;
  for (size_t at = 0; at < objects.size(); ++at) {
    const PoolEngine::Reserved reserved = internals_->Reserve(objects[at], internals_->clock->Now());
    answers[at] = reserved.answer;
    const bool made = reserved.memory.size > Bytes(0);
    reservations.push_back(made ? Reservation(this, reserved.entry, reserved.memory) : Reservation());
  }
  return reservations;
}

PutAnswer EmbeddedPool::Commit(Reservation reservation, uint64_t digest) {
  TENURE_CHECK(reservation.pool_ == this);
  reservation.pool_ = nullptr;
  return internals_->engine->Commit(reservation.entry_, digest, internals_->clock->Now());
}

absl::StatusOr<std::vector<PinnedObject>> EmbeddedPool::Pin(std::span<const ObjectKey> keys,
                                                            std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers));
  std::vector<PinnedObject> pins;
  for (size_t at = 0; at < keys.size(); ++at) {
    const PoolEngine::Pinned pinned = internals_->engine->Pin(keys[at]);
    answers[at] = pinned.entry == kNoEntry ? KeyAnswer::kAbsent : KeyAnswer::kPresent;
    const EntryRef ref{internals_->engine->ShardOf(pinned.entry), pinned.entry, pinned.generation};
    pins.push_back(pinned.entry == kNoEntry ? PinnedObject() : PinnedObject(this, ref, pinned.memory, pinned.digest));
  }
  return pins;
}

void EmbeddedPool::RemoveCorrupt(const PinnedObject& pin) {
  TENURE_CHECK(pin.pool_ == this);
  internals_->RemoveCorrupt({pin.entry_.index, pin.entry_.generation});
}

uint64_t EmbeddedPool::DigestSeedOf(const ObjectKey& key) const { return internals_->SeedOf(key); }

absl::Status EmbeddedPool::Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(internals_->CheckKeys(keys, answers));
  for (size_t at = 0; at < keys.size(); ++at) {
    answers[at] = internals_->engine->Remove(keys[at]) ? KeyAnswer::kPresent : KeyAnswer::kAbsent;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> EmbeddedPool::Clear(std::optional<NamespaceId> name_space) {
  if (name_space.has_value() && !internals_->namespaces.Contains(*name_space)) {
    return InvalidArgument("name_space is {}, which this pool did not give out; open it first", name_space->value());
  }
  return internals_->engine->Clear(name_space);
}

PoolStats EmbeddedPool::Stats() const {
  PoolStats stats = internals_->engine->Stats(internals_->clock->Now());
  stats.namespaces = internals_->namespaces.size();
  stats.checksum_failures_total = internals_->checksum_failures.load(std::memory_order_relaxed);
  return stats;
}

bool EmbeddedPool::Maintain() { return internals_->engine->Maintain(internals_->clock->Now()); }

void Reservation::Abandon() {
  if (pool_ != nullptr) pool_->internals_->engine->Abandon(entry_);
  pool_ = nullptr;
}

void PinnedObject::Unpin() {
  if (pool_ != nullptr) pool_->internals_->engine->Unpin(entry_.index);
  pool_ = nullptr;
}

}  // namespace tenure::store
