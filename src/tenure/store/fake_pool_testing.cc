#include "tenure/store/fake_pool_testing.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::store {
namespace {

template <typename Objects>
std::vector<ObjectKey> KeysOf(const Objects& objects) {
  std::vector<ObjectKey> keys;
  for (const auto& object : objects) keys.push_back(object.key);
  return keys;
}

template <typename Segments>
size_t SizeOf(const Segments& segments) {
  size_t size = 0;
  for (const auto& segment : segments) size += segment.size;
  return size;
}

}  // namespace

FakePool::FakePool(const Clock& clock, bool closed) : clock_(clock) {
  traits_.name = closed ? "fake-closed" : "fake-independent";
  traits_.closed = closed;
}

void FakePool::Insert(const ObjectKey& key, const std::optional<ObjectKey>& parent) {
  if (Find(key) != nullptr) return;
  Lose(key);  // It may wait for a parent.
  TENURE_CHECK(!traits_.closed || !parent || Find(*parent) != nullptr);
  Add(key, parent).bytes.resize(1);
  Show(key);
}

bool FakePool::Evict(const ObjectKey& key) {
  if (Find(key) == nullptr || IsHeld(key)) return false;
  Lose(key);
  return true;
}

void FakePool::Lose(const ObjectKey& key) {
  const auto first = objects_.find(key);
  if (first == objects_.end()) return;
  if (first->second.parent && first->second.visible) {
    objects_.at(*first->second.parent).children.erase(key);
  } else if (first->second.parent) {
    waiting_[*first->second.parent].erase(key);
  }
  std::vector<ObjectKey> doomed = {key};
  while (!doomed.empty()) {
    const auto object = objects_.find(doomed.back());
    doomed.pop_back();
    doomed.insert(doomed.end(), object->second.children.begin(), object->second.children.end());
    by_generation_.erase(object->second.generation);
    objects_.erase(object);
  }
}

bool FakePool::Contains(const ObjectKey& key) const { return Find(key) != nullptr; }

bool FakePool::IsLeased(const ObjectKey& key) const {
  const Object* object = Find(key);
  return object != nullptr && object->holders > 0 && clock_.Now() < object->deadline;
}

bool FakePool::IsHeld(const ObjectKey& key) const {
  std::vector<ObjectKey> open = {key};
  while (!open.empty()) {
    const ObjectKey next = open.back();
    open.pop_back();
    if (IsLeased(next)) return true;
    const Object* object = Find(next);
    if (object != nullptr) open.insert(open.end(), object->children.begin(), object->children.end());
  }
  return false;
}

std::vector<ObjectKey> FakePool::Keys() const {
  std::vector<ObjectKey> keys;
  for (const auto& [key, object] : objects_) {
    if (object.visible) keys.push_back(key);
  }
  return keys;
}

int64_t FakePool::Calls(Call call) const {
  return std::count_if(records_.begin(), records_.end(), [call](const Record& record) { return record.call == call; });
}

int64_t FakePool::KeysAsked(Call call) const {
  int64_t count = 0;
  for (const Record& record : records_) {
    if (record.call == call) count += static_cast<int64_t>(record.keys.size());
  }
  return count;
}

int64_t FakePool::DistinctKeysAsked(std::span<const Call> calls) const {
  std::set<ObjectKey> keys;
  for (const Record& record : records_) {
    if (std::find(calls.begin(), calls.end(), record.call) == calls.end()) continue;
    keys.insert(record.keys.begin(), record.keys.end());
  }
  return static_cast<int64_t>(keys.size());
}

absl::StatusOr<NamespaceId> FakePool::OpenNamespace(std::string_view prefix) {
  if (prefix.empty() || prefix.size() > kNamespaceNameMax || prefix.find('\0') != std::string_view::npos) {
    return InvalidArgument("prefix: {} bytes; give 1 to {} without NUL", prefix.size(), kNamespaceNameMax);
  }
  const auto next = NamespaceId(static_cast<uint32_t>(namespaces_.size()));
  return namespaces_.emplace(std::string(prefix), next).first->second;
}

absl::Status FakePool::Probe(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kProbe, {keys.begin(), keys.end()}, answers.size()));
  for (size_t i = 0; i < keys.size(); ++i) {
    answers[i] = Find(keys[i]) != nullptr ? KeyAnswer::kPresent : KeyAnswer::kAbsent;
    if (unavailable_ && unavailable_(keys[i])) answers[i] = KeyAnswer::kUnavailable;
    ++stats_.probed_keys_total;
    stats_.probe_hits_total += answers[i] == KeyAnswer::kPresent;
  }
  return absl::OkStatus();
}

absl::StatusOr<Lease> FakePool::AcquireLease(std::span<const ObjectKey> keys, absl::Duration ttl,
                                             std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kLease, {keys.begin(), keys.end()}, answers.size()));
  if (ttl <= absl::ZeroDuration() || ttl > kLeaseTtlMax) {
    return InvalidArgument("ttl: {} s; give more than 0 and at most {} s", absl::ToDoubleSeconds(ttl),
                           absl::ToDoubleSeconds(kLeaseTtlMax));
  }
  const MonotonicTime now = clock_.Now();
  std::vector<EntryRef> held;
  for (size_t i = 0; i < keys.size(); ++i) {
    answers[i] = KeyAnswer::kAbsent;
    const auto object = objects_.find(keys[i]);
    if (unavailable_ && unavailable_(keys[i])) {
      answers[i] = KeyAnswer::kUnavailable;
    } else if (object != objects_.end() && object->second.visible) {
      answers[i] = KeyAnswer::kPresent;
      if (now >= object->second.deadline) object->second.holders = 0;
      ++object->second.holders;
      object->second.deadline = std::max(object->second.deadline, now + ttl);
      held.push_back({.shard = 0, .index = 0, .generation = object->second.generation});
    }
    ++(answers[i] == KeyAnswer::kPresent ? stats_.leased_keys_total : stats_.lease_misses_total);
  }
  return Lease(this, std::move(held), now + ttl);
}

absl::Status FakePool::Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kPut, KeysOf(objects), answers.size()));
  for (const PutObject& object : objects) {
    if (SizeOf(object.segments) == 0) return InvalidArgument("segments: 0 bytes; an object has at least 1");
  }
  for (size_t i = 0; i < objects.size(); ++i) {
    answers[i] = PutOne(objects[i]);
    if (answers[i] == PutAnswer::kExists) ++stats_.exists_total;
  }
  return absl::OkStatus();
}

absl::Status FakePool::Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kGet, KeysOf(objects), answers.size()));
  for (size_t i = 0; i < objects.size(); ++i) {
    answers[i] = GetOne(objects[i]);
    ++stats_.gets_total;
    stats_.get_misses_total += answers[i] == KeyAnswer::kAbsent;
  }
  return absl::OkStatus();
}

absl::Status FakePool::Remove(std::span<const ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kRemove, {keys.begin(), keys.end()}, answers.size()));
  for (size_t i = 0; i < keys.size(); ++i) {
    answers[i] = Find(keys[i]) != nullptr ? KeyAnswer::kPresent : KeyAnswer::kAbsent;
    stats_.removed_total += answers[i] == KeyAnswer::kPresent;
    Lose(keys[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FakePool::Clear(std::optional<NamespaceId> name_space) {
  int64_t count = 0;
  std::vector<ObjectKey> doomed;
  for (const auto& [key, object] : objects_) {
    if (name_space && key.name_space != *name_space) continue;
    count += object.visible;
    doomed.push_back(key);
  }
  for (const ObjectKey& key : doomed) Lose(key);
  return count;
}

PoolStats FakePool::Stats() const {
  PoolStats stats = stats_;
  stats.objects = static_cast<int64_t>(Keys().size());
  stats.namespaces = static_cast<int64_t>(namespaces_.size());
  return stats;
}

void FakePool::ReleaseLease(std::span<const EntryRef> entries, MonotonicTime deadline) {
  const MonotonicTime now = clock_.Now();
  if (now >= deadline) return;
  for (const EntryRef& entry : entries) {
    const auto key = by_generation_.find(entry.generation);
    if (key == by_generation_.end()) continue;
    Object& object = objects_.at(key->second);
    if (object.holders > 0 && --object.holders == 0) object.deadline = now;
  }
}

absl::Status FakePool::Begin(Call call, std::vector<ObjectKey> keys, size_t answers) {
  if (keys.size() != answers) return InvalidArgument("answers: {} for {} keys; give one a key", answers, keys.size());
  records_.push_back({.call = call, .keys = std::move(keys)});
  return before_call_ ? before_call_(call, std::vector<ObjectKey>(records_.back().keys)) : absl::OkStatus();
}

PutAnswer FakePool::PutOne(const PutObject& object) {
  const size_t size = SizeOf(object.segments);
  if (const auto old = objects_.find(object.key); old != objects_.end()) {
    if (!old->second.visible) return PutAnswer::kWaiting;
    return old->second.bytes.size() == size ? PutAnswer::kExists : PutAnswer::kSizeDiffers;
  }
  Object& added = Add(object.key, object.parent);
  for (const ConstSegment& segment : object.segments) {
    const size_t start = added.bytes.size();
    added.bytes.resize(start + segment.size);
    if (segment.data != nullptr) std::memcpy(added.bytes.data() + start, segment.data, segment.size);
  }
  if (added.parent && Find(*added.parent) == nullptr) {
    waiting_[*added.parent].insert(object.key);
    return PutAnswer::kWaiting;
  }
  Show(object.key);
  return PutAnswer::kStored;
}

KeyAnswer FakePool::GetOne(const GetObject& object) {
  if (unavailable_ && unavailable_(object.key)) return KeyAnswer::kUnavailable;
  const Object* found = Find(object.key);
  if (found == nullptr) return KeyAnswer::kAbsent;
  if (found->bytes.size() != SizeOf(object.segments)) return KeyAnswer::kSizeDiffers;
  size_t start = 0;
  for (const Segment& segment : object.segments) {
    if (segment.data != nullptr) std::memcpy(segment.data, found->bytes.data() + start, segment.size);
    start += segment.size;
  }
  return KeyAnswer::kPresent;
}

const FakePool::Object* FakePool::Find(const ObjectKey& key) const {
  const auto object = objects_.find(key);
  return object != objects_.end() && object->second.visible ? &object->second : nullptr;
}

FakePool::Object& FakePool::Add(const ObjectKey& key, const std::optional<ObjectKey>& parent) {
  Object& object = objects_[key];
  if (traits_.closed) object.parent = parent;
  object.generation = next_generation_++;
  by_generation_.emplace(object.generation, key);
  return object;
}

// Also shows what waited for it.
void FakePool::Show(const ObjectKey& key) {
  std::vector<ObjectKey> open = {key};
  while (!open.empty()) {
    const ObjectKey next = open.back();
    open.pop_back();
    Object& object = objects_.at(next);
    object.visible = true;
    if (object.parent) objects_.at(*object.parent).children.insert(next);
    ++stats_.stored_total;
    stats_.stored_bytes_total += Bytes(static_cast<int64_t>(object.bytes.size()));
    if (const auto waiters = waiting_.find(next); waiters != waiting_.end()) {
      open.insert(open.end(), waiters->second.begin(), waiters->second.end());
      waiting_.erase(waiters);
    }
  }
}

}  // namespace tenure::store
