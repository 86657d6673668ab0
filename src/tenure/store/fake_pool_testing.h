// FakePool: an unbounded pool in plain maps for the tests of what stands on a pool. It never evicts by itself: the test
// does, between any two calls, through a hook. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/store/pool.h"

namespace tenure::store {

class FakePool final : public Pool {
 public:
  enum class Call : uint8_t { kProbe, kLease, kPut, kGet, kRemove };
  struct Record {
    Call call = Call::kProbe;
    std::vector<ObjectKey> keys;  // As asked, repetitions too.
  };
  // Runs before a call looks at anything and may change this pool (Insert, Evict, Lose). What it returns, if not OK, is
  // the call's answer.
  using BeforeCall = std::function<absl::Status(Call call, std::span<const ObjectKey> keys)>;
  // True: probe, lease and get answer kUnavailable for the key.
  using IsUnavailable = std::function<bool(const ObjectKey& key)>;

  FakePool(const Clock& clock, bool closed);

  void set_before_call(BeforeCall hook) { before_call_ = std::move(hook); }
  void set_unavailable(IsUnavailable hook) { unavailable_ = std::move(hook); }
  void MakeRoundsDear() { traits_.dear_rounds = true; }

  // Puts an object of one byte there at once, unrecorded. In a closed pool `parent`, where given, must be visible.
  void Insert(const ObjectKey& key, const std::optional<ObjectKey>& parent = std::nullopt);
  // As a pool evicts: false, and nothing has changed, when the key is absent or held. Takes descendants along in a
  // closed pool.
  bool Evict(const ObjectKey& key);
  // As a removal does: the object and its descendants are gone, leased or not.
  void Lose(const ObjectKey& key);

  bool Contains(const ObjectKey& key) const;
  // The object itself has a lease that has not ended; descendants do not count.
  bool IsLeased(const ObjectKey& key) const;
  // The object cannot be evicted: it, or in a closed pool a descendant, is leased.
  bool IsHeld(const ObjectKey& key) const;
  // Visible objects in key order.
  std::vector<ObjectKey> Keys() const;

  const std::vector<Record>& records() const { return records_; }
  void ClearRecords() { records_.clear(); }
  // Over the records of `call`: calls, keys with repetitions, and distinct keys.
  int64_t Calls(Call call) const;
  int64_t KeysAsked(Call call) const;
  int64_t DistinctKeysAsked(std::span<const Call> calls) const;

  const PoolTraits& traits() const override { return traits_; }
  absl::StatusOr<NamespaceId> OpenNamespace(std::string_view prefix) override;
  absl::Status Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override;
  absl::StatusOr<Lease> AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                     std::span<KeyAnswer> answers) override;
  absl::Status Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) override;
  absl::Status Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) override;
  absl::Status Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) override;
  absl::StatusOr<int64_t> Clear(std::optional<NamespaceId> name_space) override;
  // Objects, namespaces and the counters of probe, lease, put and get.
  PoolStats Stats() const override;

 private:
  struct Object {
    std::vector<std::byte> bytes;
    std::optional<ObjectKey> parent;  // Closed pools only.
    std::set<ObjectKey> children;
    bool visible = false;
    uint32_t generation = 0;
    int64_t holders = 0;
    MonotonicTime deadline = MonotonicTime::Min();
  };

  void ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) override;
  absl::Status Begin(Call call, std::vector<ObjectKey> keys, size_t answers);
  PutAnswer PutOne(const PutObject& object);
  KeyAnswer GetOne(const GetObject& object);
  const Object* Find(const ObjectKey& key) const;  // Null unless visible.
  Object& Add(const ObjectKey& key, const std::optional<ObjectKey>& parent);
  void Show(const ObjectKey& key);

  const Clock& clock_;
  PoolTraits traits_;
  BeforeCall before_call_;
  IsUnavailable unavailable_;
  std::map<std::string, NamespaceId, std::less<>> namespaces_;
  std::map<ObjectKey, Object> objects_;
  std::map<ObjectKey, std::set<ObjectKey>> waiting_;  // By the parent that is not there.
  std::map<uint32_t, ObjectKey> by_generation_;       // Generations are never given out twice.
  uint32_t next_generation_ = 1;
  std::vector<Record> records_;
  PoolStats stats_;
};

}  // namespace tenure::store
