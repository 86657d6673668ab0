#include "tenure/store/pool_driver_testing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/store/copy_digest.h"

namespace tenure::store {
namespace {

using State = PoolModel::State;
using Call = PoolModel::Call;

constexpr size_t kHistoryMax = 40;  // Steps.
constexpr size_t kOpenMax = 6;      // Leases, pins and reservations open at a time, of each.

// Tells key and put apart in every eight bytes.
std::vector<std::byte> Pattern(int key, int version, int64_t size) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  const uint64_t seed = Random::Mix(static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(version));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((seed + Random::Mix(i / 8)) >> (i % 8 * 8));
  }
  return bytes;
}

bool Holds(const SlotMemory& memory, int key, int version) {
  if (memory.address == nullptr) return true;
  const std::vector<std::byte> right = Pattern(key, version, memory.size.value());
  return std::memcmp(memory.address, right.data(), right.size()) == 0;
}

ObjectKey MakeKey(int number, NamespaceId name_space) {
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = Random::Mix(static_cast<uint64_t>(number) * 8 + i + 1);
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
  return {.name_space = name_space,
          .hash = kv::BlockHash::FromTrusted(std::span(bytes).first(number % 2 == 0 ? 16 : 32))};
}

template <typename T>
T TakeAt(std::vector<T>& items, size_t index) {
  T item = std::move(items[index]);
  items[index] = std::move(items.back());
  items.pop_back();
  return item;
}

bool OneSize(const PoolDriver::Setup& setup) { return setup.sizes.size() == 1; }

}  // namespace

PoolDriver::PoolDriver(const Setup& setup, Choose choose)
    : setup_(setup),
      has_bytes_(setup.options.memory == MemoryKind::kMapped),
      choose_(std::move(choose)),
      pool_(EmbeddedPool::Create(setup.options, clock_).value()),
      model_(setup.options, OneSize(setup)) {
  const std::array<NamespaceId, 2> spaces = {pool_->OpenNamespace("a").value(), pool_->OpenNamespace("b").value()};
  for (int key = 0; key < setup.keys; ++key) keys_.push_back(MakeKey(key, spaces[key % 5 == 0 ? 1 : 0]));
}

std::string PoolDriver::Step() {
  struct Weighted {
    std::string (PoolDriver::*run)();
    uint64_t weight;
  };
  static constexpr std::array<Weighted, 13> kSteps = {{{&PoolDriver::Put, 30},
                                                       {&PoolDriver::Acquire, 10},
                                                       {&PoolDriver::EndLease, 10},
                                                       {&PoolDriver::Get, 8},
                                                       {&PoolDriver::Reserve, 8},
                                                       {&PoolDriver::EndPut, 10},
                                                       {&PoolDriver::Pin, 5},
                                                       {&PoolDriver::EndPin, 6},
                                                       {&PoolDriver::Maintain, 10},
                                                       {&PoolDriver::Advance, 12},
                                                       {&PoolDriver::Probe, 3},
                                                       {&PoolDriver::Remove, 2},
                                                       {&PoolDriver::Clear, 0}}};
  uint64_t total = 0;
  for (const Weighted& step : kSteps) total += step.weight;
  uint64_t choice = choose_(total);
  if (choice == 0 && Chance(30)) return Clear();
  for (const Weighted& step : kSteps) {
    if (choice < step.weight) return (this->*step.run)();
    choice -= step.weight;
  }
  return "";
}

std::string PoolDriver::History() const { return fmt::format("{}", fmt::join(history_, "\n")); }

void PoolDriver::Note(std::string line) {
  history_.push_back(fmt::format("{} ms: {}", Now().nanoseconds() / 1'000'000, line));
  if (history_.size() > kHistoryMax) history_.pop_front();
}

std::string PoolDriver::Probe() {
  const std::vector<int> chosen = ChooseKeys(20);
  std::vector<KeyAnswer> answers(chosen.size());
  const PoolStats before = pool_->Stats();
  TENURE_CHECK(pool_->Probe(ObjectKeys(chosen), answers).ok());
  int64_t hits = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const bool present = model_.Visible(chosen[i]) != nullptr;
    hits += present;
    if ((answers[i] == KeyAnswer::kPresent) != present) return fmt::format("probe of key {}", chosen[i]);
  }
  const PoolStats after = pool_->Stats();
  if (after.probed_keys_total - before.probed_keys_total != static_cast<int64_t>(chosen.size()) ||
      after.probe_hits_total - before.probe_hits_total != hits) {
    return "probes are not counted";
  }
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Acquire() {
  const std::vector<int> chosen = ChooseKeys(4);
  std::vector<KeyAnswer> answers(chosen.size());
  const absl::Duration ttl = absl::Milliseconds(1 + choose_(Chance(4) ? 60'000 : 2'000));
  Note(fmt::format("lease {} for {} ms", fmt::join(chosen, " "), absl::ToInt64Milliseconds(ttl)));
  const PoolStats before = pool_->Stats();
  HeldLease lease;
  lease.handle = pool_->AcquireLease(ObjectKeys(chosen), ttl, answers).value();
  lease.deadline = Now() + ttl;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const uint64_t serial = model_.Lease(chosen[i], lease.deadline, Now());
    if ((answers[i] == KeyAnswer::kPresent) != (serial != 0)) return fmt::format("lease of key {}", chosen[i]);
    if (serial != 0) lease.held.emplace_back(chosen[i], serial);
  }
  if (lease.handle.size() != lease.held.size()) return "a lease holds another number of objects than it answered";
  const PoolStats after = pool_->Stats();
  if (after.leased_keys_total - before.leased_keys_total != static_cast<int64_t>(lease.held.size())) {
    return "leases are not counted";
  }
  if (Chance(4)) {
    lease.handle.Forget();
  } else {
    leases_.push_back(std::move(lease));
  }
  if (leases_.size() > kOpenMax) return EndLease();
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::EndLease() {
  if (leases_.empty()) return "";
  const PoolStats before = pool_->Stats();
  HeldLease lease = TakeAt(leases_, choose_(leases_.size()));
  for (const auto& [key, serial] : lease.held) Note(fmt::format("release {}", key));
  for (const auto& [key, serial] : lease.held) model_.Release(key, serial, lease.deadline, Now());
  lease.handle.Release();
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Put() {
  const Batch batch = MakeBatch(has_bytes_);
  std::vector<PutAnswer> answers(batch.objects.size());
  const PoolStats before = pool_->Stats();
  TENURE_CHECK(pool_->Put(batch.objects, answers).ok());
  for (size_t i = 0; i < answers.size(); ++i) {
    Note(fmt::format("put {} of {} bytes, parent {}: {}", batch.keys[i], batch.sizes[i], batch.parents[i].value_or(-1),
                     ToString(answers[i])));
    std::string wrong =
        model_.CheckPut(batch.keys[i], batch.sizes[i], batch.parents[i], answers[i], answers.size() == 1, Now());
    if (!wrong.empty()) return fmt::format("put of key {} answered {}: {}", batch.keys[i], ToString(answers[i]), wrong);
    if (answers[i] != PutAnswer::kStored && answers[i] != PutAnswer::kWaiting) continue;
    const auto old = model_.objects().find(batch.keys[i]);
    const bool waited = old != model_.objects().end() && old->second.state == State::kWaiting;
    if (answers[i] == PutAnswer::kWaiting && waited) {
      // Either it still waits, or it was dropped and a new one waits now. In a batch only its twin can be meant.
      const PoolStats after = pool_->Stats();
      const int64_t came = after.held.waiting + after.evicted_waiting_total;
      if (answers.size() > 1 || came == before.held.waiting + before.evicted_waiting_total) continue;
    }
    model_.Add(batch.keys[i], batch.sizes[i], batch.parents[i], batch.versions[i],
               answers[i] == PutAnswer::kStored ? State::kVisible : State::kWaiting, answers[i] == PutAnswer::kWaiting,
               Now());
  }
  return Reconcile(Call::kPut, before);
}

std::string PoolDriver::Get() {
  const int key = ChooseKeys(1)[0];
  const PoolModel::Object* object = model_.Visible(key);
  const bool other_size = Chance(10);
  const int64_t size = (object != nullptr ? object->size : setup_.sizes[0]) + (other_size ? 1 : 0);
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  const size_t cut = choose_(bytes.size() + 1);
  const std::array<Segment, 2> segments = {
      {{.data = bytes.data(), .size = cut}, {.data = bytes.data() + cut, .size = bytes.size() - cut}}};
  KeyAnswer answer = KeyAnswer::kUnavailable;
  const GetObject get = {.key = keys_[static_cast<size_t>(key)], .segments = segments};
  const PoolStats before = pool_->Stats();
  TENURE_CHECK(pool_->Get({&get, 1}, {&answer, 1}).ok());
  const KeyAnswer right = object == nullptr ? KeyAnswer::kAbsent
                          : other_size      ? KeyAnswer::kSizeDiffers
                                            : KeyAnswer::kPresent;
  if (answer != right) return fmt::format("get of key {} answered {}", key, ToString(answer));
  if (answer == KeyAnswer::kPresent && has_bytes_ && bytes != Pattern(key, object->version, size)) {
    return fmt::format("get of key {} gave other bytes than were put", key);
  }
  if (pool_->Stats().checksum_failures_total != 0) return "a digest failed";
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Reserve() {
  const Batch batch = MakeBatch(false);
  std::vector<PutAnswer> answers(batch.objects.size());
  const PoolStats before = pool_->Stats();
  std::vector<Reservation> reservations = pool_->Reserve(batch.objects, answers).value();
  for (size_t i = 0; i < answers.size(); ++i) {
    const int key = batch.keys[i];
    Note(fmt::format("reserve {} of {} bytes, parent {}: {}", key, batch.sizes[i], batch.parents[i].value_or(-1),
                     ToString(answers[i])));
    std::string wrong = model_.CheckPut(key, batch.sizes[i], batch.parents[i], answers[i], answers.size() == 1, Now());
    if (!wrong.empty()) return fmt::format("reserve of key {} answered {}: {}", key, ToString(answers[i]), wrong);
    if (!reservations[i].valid()) {
      if (answers[i] == PutAnswer::kStored) return "a reservation without room";
      continue;
    }
    if (reservations[i].memory().size.value() != batch.sizes[i]) return "a reservation of another size";
    const uint64_t serial = model_.Add(key, batch.sizes[i], batch.parents[i], batch.versions[i], State::kWriting,
                                       answers[i] == PutAnswer::kWaiting, Now());
    if (has_bytes_) {
      const std::vector<std::byte> bytes = Pattern(key, batch.versions[i], batch.sizes[i]);
      std::memcpy(reservations[i].memory().address, bytes.data(), bytes.size());
    }
    puts_.push_back(
        {.reservation = std::move(reservations[i]), .key = key, .serial = serial, .version = batch.versions[i]});
  }
  std::string wrong = Reconcile(Call::kPut, before);
  while (wrong.empty() && puts_.size() > kOpenMax) wrong = EndPut();
  return wrong;
}

std::string PoolDriver::EndPut() {
  if (puts_.empty()) return "";
  const PoolStats before = pool_->Stats();
  OpenPut put = TakeAt(puts_, choose_(puts_.size()));
  if (!Holds(put.reservation.memory(), put.key, put.version)) return "somebody wrote into a reservation";
  if (Chance(4)) {
    Note(fmt::format("abandon {}", put.key));
    model_.Abandon(put.key, put.serial);
    put.reservation.Abandon();
  } else {
    const SlotMemory memory = put.reservation.memory();
    uint64_t digest = 0;
    if (has_bytes_) {
      digest = Digest(pool_->DigestSeedOf(keys_[static_cast<size_t>(put.key)]),
                      {memory.address, static_cast<size_t>(memory.size.value())});
    }
    const PutAnswer answer = pool_->Commit(std::move(put.reservation), digest);
    Note(fmt::format("commit {}: {}", put.key, ToString(answer)));
    std::string wrong = model_.Commit(put.key, put.serial, answer, Now());
    if (!wrong.empty()) return fmt::format("commit of key {} answered {}: {}", put.key, ToString(answer), wrong);
  }
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Pin() {
  const std::vector<int> chosen = ChooseKeys(3);
  std::vector<KeyAnswer> answers(chosen.size());
  const PoolStats before = pool_->Stats();
  std::vector<PinnedObject> pinned = pool_->Pin(ObjectKeys(chosen), answers).value();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const PoolModel::Object* object = model_.Visible(chosen[i]);
    if ((answers[i] == KeyAnswer::kPresent) != (object != nullptr)) return fmt::format("pin of key {}", chosen[i]);
    if (object == nullptr) continue;
    Note(fmt::format("pin {}", chosen[i]));
    model_.Pin(chosen[i]);
    pins_.push_back(
        {.pin = std::move(pinned[i]), .key = chosen[i], .serial = object->serial, .version = object->version});
  }
  std::string wrong = Reconcile(Call::kReads, before);
  while (wrong.empty() && pins_.size() > kOpenMax) wrong = EndPin();
  return wrong;
}

std::string PoolDriver::EndPin() {
  if (pins_.empty()) return "";
  const PoolStats before = pool_->Stats();
  OpenPin open = TakeAt(pins_, choose_(pins_.size()));
  if (!Holds(open.pin.memory(), open.key, open.version)) return "a pinned object changed";
  Note(fmt::format("unpin {}", open.key));
  model_.Unpin(open.key, open.serial);
  open.pin.Unpin();
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Remove() {
  std::vector<int> chosen = ChooseKeys(2);
  if (!pins_.empty() && Chance(2)) chosen = {pins_[choose_(pins_.size())].key};  // Under its reader.
  std::vector<KeyAnswer> answers(chosen.size());
  const PoolStats before = pool_->Stats();
  std::vector<bool> present;
  for (const int key : chosen) present.push_back(model_.Visible(key) != nullptr);
  TENURE_CHECK(pool_->Remove(ObjectKeys(chosen), answers).ok());
  Note(fmt::format("remove {}", fmt::join(chosen, " ")));
  for (size_t i = 0; i < chosen.size(); ++i) {
    // A key of the batch may go with another one, before or after its own turn.
    const bool still_present = model_.Visible(chosen[i]) != nullptr;
    model_.Remove(chosen[i]);
    if (answers[i] == KeyAnswer::kPresent ? !present[i] : still_present && chosen.size() == 1) {
      return fmt::format("remove of key {} answered {}", chosen[i], ToString(answers[i]));
    }
  }
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Clear() {
  const PoolStats before = pool_->Stats();
  const std::optional<NamespaceId> space =
      Chance(2) ? std::nullopt : std::optional(keys_[choose_(keys_.size())].name_space);
  const int64_t answer = pool_->Clear(space).value();
  Note("clear");
  int64_t in_space = 0;
  for (int key = 0; key < setup_.keys; ++key) {
    if (!space || keys_[static_cast<size_t>(key)].name_space == *space) in_space += model_.Visible(key) != nullptr;
  }
  int64_t gone = 0;
  for (int key = 0; key < setup_.keys; ++key) {
    if (!space || keys_[static_cast<size_t>(key)].name_space == *space) gone += model_.Remove(key);
  }
  // Descendants in another namespace go too; whether they are counted is left open.
  if (answer < in_space || answer > gone)
    return fmt::format("clear answered {}, {} to {} went", answer, in_space, gone);
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Maintain() {
  for (int64_t step = 0; step < 1'000; ++step) {
    const PoolStats before = pool_->Stats();
    const bool more = pool_->Maintain();
    Note("maintain");
    if (std::string wrong = Reconcile(Call::kMaintain, before); !wrong.empty()) return wrong;
    if (!more || Chance(8)) return "";
  }
  return "maintenance has no end";
}

std::string PoolDriver::Advance() {
  const PoolStats before = pool_->Stats();
  const uint64_t most = Chance(8) ? 30'000 : Chance(3) ? 2'000 : 100;
  clock_.Advance(Chance(500) ? absl::Hours(30) : absl::Milliseconds(choose_(most)));
  return Reconcile(Call::kReads, before);
}

std::string PoolDriver::Finish() {
  std::string wrong;
  while (wrong.empty() && !leases_.empty()) wrong = EndLease();
  while (wrong.empty() && !puts_.empty()) wrong = EndPut();
  while (wrong.empty() && !pins_.empty()) wrong = EndPin();
  if (!wrong.empty()) return wrong;
  const int64_t visible = pool_->Stats().objects;
  if (pool_->Clear(std::nullopt).value() != visible) return "clear did not count what was visible";
  const PoolStats stats = pool_->Stats();
  if (stats.used != Bytes(0)) return fmt::format("{} bytes leaked", stats.used.value());
  const HeldCounts& held = stats.held;
  if (stats.objects + held.leased + held.pinned + held.writing + held.waiting + held.parents != 0)
    return "counts leaked";
  return "";
}

PoolDriver::Batch PoolDriver::MakeBatch(bool with_bytes) {
  Batch batch;
  // A key that may wait is put alone: otherwise nobody could tell which of its puts is the one that waits.
  for (const int key : ChooseKeys(Chance(4) ? 6 : 1)) {
    const auto object = model_.objects().find(key);
    const bool may_wait = object != model_.objects().end() && object->second.state == State::kWaiting;
    const bool named = std::find(batch.keys.begin(), batch.keys.end(), key) != batch.keys.end();
    if (named || (may_wait && !batch.keys.empty())) continue;
    batch.keys.push_back(key);
    if (may_wait) break;
    if (Chance(8)) batch.keys.push_back(key);  // Twice in one batch.
  }
  const size_t count = batch.keys.size();
  for (const int key : batch.keys) {
    batch.sizes.push_back(setup_.sizes[choose_(setup_.sizes.size())]);
    batch.versions.push_back(next_version_++);
    // Mostly one tree, with chains in it; sometimes any parent at all, the object itself included.
    const int above = key % 8 == 0 ? key / 2 : key - 1;
    std::optional<int> parent;
    if (Chance(12)) {
      parent = ChooseKeys(1)[0];
    } else if (key != 0 && !Chance(12)) {
      parent = above;
    }
    batch.parents.push_back(parent);
    batch.bytes.push_back(with_bytes ? Pattern(key, batch.versions.back(), batch.sizes.back())
                                     : std::vector<std::byte>());
  }
  for (size_t i = 0; i < count; ++i) {
    batch.segments.push_back(
        {.data = with_bytes ? batch.bytes[i].data() : nullptr, .size = static_cast<size_t>(batch.sizes[i])});
  }
  for (size_t i = 0; i < count; ++i) {
    std::optional<ObjectKey> parent;
    if (batch.parents[i]) parent = keys_[static_cast<size_t>(*batch.parents[i])];
    batch.objects.push_back({.key = keys_[static_cast<size_t>(batch.keys[i])],
                             .segments = std::span(batch.segments).subspan(i, 1),
                             .parent = parent});
  }
  return batch;
}

// Neighbours often, so that batches hold chains.
std::vector<int> PoolDriver::ChooseKeys(size_t most) {
  const auto keys = static_cast<uint64_t>(setup_.keys);
  std::vector<int> chosen = {static_cast<int>(choose_(keys))};
  while (chosen.size() < most && !Chance(most)) {
    chosen.push_back(Chance(3) ? static_cast<int>(choose_(keys)) : (chosen.back() + 1) % setup_.keys);
  }
  return chosen;
}

std::vector<ObjectKey> PoolDriver::ObjectKeys(const std::vector<int>& keys) const {
  std::vector<ObjectKey> result;
  for (const int key : keys) result.push_back(keys_[static_cast<size_t>(key)]);
  return result;
}

std::string PoolDriver::Reconcile(Call call, const PoolStats& before) {
  std::vector<KeyAnswer> answers(keys_.size());
  const PoolStats after = pool_->Stats();
  TENURE_CHECK(pool_->Probe(keys_, answers).ok());
  std::vector<int> visible;
  for (int key = 0; key < setup_.keys; ++key) {
    if (answers[static_cast<size_t>(key)] == KeyAnswer::kPresent) visible.push_back(key);
  }
  return model_.Reconcile(call, visible, before, after, Now());
}

}  // namespace tenure::store
