#include "bindings/mooncake_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bindings/left_behind.h"
#include "bindings/lock_guard.h"
#include "tenure/base/status.h"
#include "tenure/kv/key_format.h"

namespace nb = nanobind;

namespace tenure::python {
namespace {

using store::KeyAnswer;
using store::PutAnswer;

// Two: one that Mooncake works on while the next is filled.
constexpr size_t kStagingBuffers = 2;
// Mooncake's client and its master take turns at one call, so two calls of half the keys at one time take 0.55 to 0.85
// of one; below this the other thread costs what it saves.
constexpr size_t kHalvedKeysMin = 2'048;

store::PoolTraits Traits() {
  using store::Difference;
  return {.name = "mooncake",
          .closed = false,
          .dear_rounds = true,  // 70 us a call at least, 300 where threads slept; 0.5 us a key.
          .differences = {Difference::kOneLeaseTtl, Difference::kNoPin, Difference::kNotStoredAnswer,
                          Difference::kNoChecksum, Difference::kOwnWatermark}};
}

// Of probe, exist and remove.
KeyAnswer AnswerOf(int64_t code, int64_t present) {
  if (code == present) return KeyAnswer::kPresent;
  const bool absent = code == 0 || code == mooncake_code::kNotFound || code == mooncake_code::kNotReady;
  return absent ? KeyAnswer::kAbsent : KeyAnswer::kUnavailable;
}

// A regular expression that matches texts beginning with `prefix`.
std::string PatternOf(std::string_view prefix) {
  std::string pattern = "^";
  for (const char letter : prefix) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(letter) != std::string_view::npos) pattern += '\\';
    pattern += letter;
  }
  return pattern + ".*";
}

}  // namespace

absl::StatusOr<std::unique_ptr<MooncakePool>> MooncakePool::Create(std::shared_ptr<MooncakeClient> client,
                                                                   const nb::tuple& setup_arguments,
                                                                   const MooncakePoolOptions& options) {
  if (options.staging_bytes < Bytes(1) || options.staging_bytes.value() > int64_t{1} << 40) {
    return InvalidArgument("staging_bytes is {}; use at least the size of the largest object",
                           options.staging_bytes.value());
  }
  const LockReleased unlocked;
  TENURE_ASSIGN_OR_RETURN(std::shared_ptr<StagingBuffers> staging,
                          StagingBuffers::Create(kStagingBuffers, static_cast<size_t>(options.staging_bytes.value())));
  client->KeepUntilClosed(staging);
  std::unique_ptr<MooncakePool> pool(new MooncakePool(client, staging, options));
  // The arguments are owned by the call, as everything that may outlast its caller.
  auto arguments = std::shared_ptr<nb::tuple>(nullptr);
  {
    nb::gil_scoped_acquire locked;
    arguments = std::shared_ptr<nb::tuple>(new nb::tuple(setup_arguments), [](nb::tuple* tuple) {
      nb::gil_scoped_acquire relocked;
      delete tuple;
    });
  }
  auto set_up = [client = std::move(client), arguments, staging]() -> absl::Status {
    TENURE_RETURN_IF_ERROR(client->Setup(*arguments));
    return client->RegisterBuffer({reinterpret_cast<uintptr_t>(staging->base()), staging->total_bytes()});
  };
  TENURE_RETURN_IF_ERROR(pool->questions_.Run(options.setup_timeout, std::move(set_up)));
  return pool;
}

MooncakePool::MooncakePool(std::shared_ptr<MooncakeClient> client, std::shared_ptr<StagingBuffers> staging,
                           const MooncakePoolOptions& options)
    : options_(options),
      traits_(Traits()),
      staging_(std::move(staging)),
      client_(std::move(client)),
      namespaces_(kNamespacesMax) {}

void MooncakePool::End() {
  // The threads need the interpreter's lock to end their calls, and Mooncake's close may block.
  const LockReleased unlocked;
  auto last = std::make_shared<std::shared_ptr<MooncakeClient>>();
  {
    MutexLock lock(mutex_);
    last->swap(client_);
  }
  // Late calls keep the client, and the last of them closes the store.
  const auto close = [last] {
    last->reset();
    return absl::OkStatus();
  };
  if (*last != nullptr && !questions_.IsStuck()) questions_.Run(options_.call_timeout, close).IgnoreError();
  questions_.Stop();
  copies_.Stop();
  halves_.Stop();
  endless_.Stop();
}

absl::StatusOr<std::shared_ptr<MooncakeClient>> MooncakePool::Client() const {
  MutexLock lock(mutex_);
  if (client_ == nullptr) return Unavailable("the Mooncake pool is closed; make a new one");
  return client_;
}

absl::StatusOr<store::NamespaceId> MooncakePool::OpenNamespace(std::string_view prefix) {
  MutexLock lock(mutex_);
  TENURE_ASSIGN_OR_RETURN(const store::NamespaceId id, namespaces_.Open(prefix));
  if (id.value() == prefixes_->size()) prefixes_->emplace_back(std::string(prefix));
  return id;
}

absl::StatusOr<MooncakeKeys> MooncakePool::KeysOf(std::span<const store::ObjectKey> keys) const {
  MooncakeKeys texts(prefixes_);
  texts.Reserve(keys.size());
  MutexLock lock(mutex_);
  for (const store::ObjectKey& key : keys) {
    if (key.name_space.value() >= prefixes_->size()) {
      return InvalidArgument("namespace {} is not of this pool; use OpenNamespace", key.name_space.value());
    }
    if (key.hash.size() == 0) return InvalidArgument("a key has no hash; use 16 or 32 bytes");
    texts.Append({&(*prefixes_)[key.name_space.value()], key.hash});
  }
  return texts;
}

absl::StatusOr<MooncakePool::Codes> MooncakePool::Ask(Question question, std::span<const store::ObjectKey> keys,
                                                      Thread thread) {
  if (thread == Thread::kCallers) return AskHere(question, keys);
  TENURE_ASSIGN_OR_RETURN(std::shared_ptr<MooncakeClient> client, Client());
  TENURE_ASSIGN_OR_RETURN(MooncakeKeys texts, KeysOf(keys));
  auto codes = std::make_shared<Codes>();
  TENURE_RETURN_IF_ERROR(questions_.Run(
      options_.call_timeout, [client = std::move(client), texts = std::move(texts), question, codes]() -> absl::Status {
        TENURE_ASSIGN_OR_RETURN(*codes, ((*client).*question)(texts));
        return absl::OkStatus();
      }));
  return std::move(*codes);
}

absl::StatusOr<MooncakePool::Codes> MooncakePool::AskHere(Question question, std::span<const store::ObjectKey> keys) {
  MarkLeavable();
  if (keys.size() >= kHalvedKeysMin && !halves_.IsStuck()) return AskInHalves(question, keys);
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<MooncakeClient> client, Client());
  TENURE_ASSIGN_OR_RETURN(const MooncakeKeys texts, KeysOf(keys));
  return ((*client).*question)(texts);
}

absl::StatusOr<MooncakePool::Codes> MooncakePool::AskInHalves(Question question,
                                                              std::span<const store::ObjectKey> keys) {
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<MooncakeClient> client, Client());
  TENURE_ASSIGN_OR_RETURN(const MooncakeKeys first, KeysOf(keys.first(keys.size() / 2)));
  TENURE_ASSIGN_OR_RETURN(MooncakeKeys second, KeysOf(keys.subspan(keys.size() / 2)));
  auto rest = std::make_shared<Codes>();
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<CallLane::Call> other,
                          halves_.Start([client, second = std::move(second), question, rest]() -> absl::Status {
                            TENURE_ASSIGN_OR_RETURN(*rest, ((*client).*question)(second));
                            return absl::OkStatus();
                          }));
  absl::StatusOr<Codes> codes = ((*client).*question)(first);
  const absl::Status ended = halves_.Await(other, codes.ok() ? options_.call_timeout : absl::ZeroDuration());
  TENURE_RETURN_IF_ERROR(codes.status());
  TENURE_RETURN_IF_ERROR(ended);
  codes->insert(codes->end(), rest->begin(), rest->end());
  return codes;
}

absl::Status MooncakePool::Probe(std::span<const store::ObjectKey> keys, std::span<KeyAnswer> answers) {
  return ProbeOn(Thread::kLane, keys, answers);
}

absl::Status MooncakePool::ProbeBlocking(std::span<const store::ObjectKey> keys, std::span<KeyAnswer> answers) {
  return ProbeOn(Thread::kCallers, keys, answers);
}

absl::Status MooncakePool::ProbeOn(Thread thread, std::span<const store::ObjectKey> keys,
                                   std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(keys.size(), answers.size()));
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  if (keys.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(const Codes codes, Ask(&MooncakeClient::Probe, keys, thread));
  for (size_t i = 0; i < keys.size(); ++i) answers[i] = AnswerOf(codes[i], 1);
  counters_.probed += static_cast<int64_t>(keys.size());
  counters_.probe_hits += std::count(answers.begin(), answers.end(), KeyAnswer::kPresent);
  return absl::OkStatus();
}

absl::StatusOr<store::Lease> MooncakePool::AcquireLease(std::span<const store::ObjectKey> keys, absl::Duration ttl,
                                                        std::span<KeyAnswer> answers) {
  return AcquireLeaseOn(Thread::kLane, keys, ttl, answers);
}

absl::StatusOr<store::Lease> MooncakePool::AcquireLeaseBlocking(std::span<const store::ObjectKey> keys,
                                                                absl::Duration ttl, std::span<KeyAnswer> answers) {
  return AcquireLeaseOn(Thread::kCallers, keys, ttl, answers);
}

absl::StatusOr<store::Lease> MooncakePool::AcquireLeaseOn(Thread thread, std::span<const store::ObjectKey> keys,
                                                          absl::Duration ttl, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(keys.size(), answers.size()));
  if (ttl <= absl::ZeroDuration() || ttl > kLeaseTtlMax) {
    return InvalidArgument("ttl is {} s; use more than 0 and at most {} s", absl::ToDoubleSeconds(ttl),
                           absl::ToDoubleSeconds(kLeaseTtlMax));
  }
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  // The master counts from a later instant, so this deadline is never too late.
  const MonotonicTime deadline = clock_.Now() + std::min(ttl, options_.lease_ttl);
  if (keys.empty()) return store::Lease(this, {}, deadline);
  TENURE_ASSIGN_OR_RETURN(const Codes codes, Ask(&MooncakeClient::Exists, keys, thread));
  std::vector<store::EntryRef> entries;
  for (size_t i = 0; i < keys.size(); ++i) {
    answers[i] = AnswerOf(codes[i], 1);
    if (answers[i] == KeyAnswer::kPresent) entries.push_back({.index = static_cast<uint32_t>(i)});
  }
  counters_.leased += static_cast<int64_t>(entries.size());
  counters_.lease_misses += static_cast<int64_t>(keys.size() - entries.size());
  return store::Lease(this, std::move(entries), deadline);
}

// Mooncake has no release: the lease runs out by the master's TTL.
void MooncakePool::ReleaseLease(std::span<const store::EntryRef>, MonotonicTime) {}

template <typename Object>
size_t MooncakePool::PartEnd(std::span<const Object> objects, size_t begin) const {
  size_t end = begin;
  size_t bytes = 0;
  for (; end < objects.size(); ++end) {
    bytes += SizeOf(objects[end].segments).value_or(0);
    if (end > begin && bytes > staging_->bytes()) break;
  }
  return end;
}

absl::Status MooncakePool::Put(std::span<const store::PutObject> objects, std::span<PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(objects.size(), answers.size()));
  TENURE_RETURN_IF_ERROR(SizesOf(objects).status());
  std::fill(answers.begin(), answers.end(), PutAnswer::kNotStored);
  for (size_t begin = 0, end = 0; begin < objects.size(); begin = end) {
    end = PartEnd(objects, begin);
    TENURE_RETURN_IF_ERROR(PutPart(objects.subspan(begin, end - begin), answers.subspan(begin, end - begin)));
  }
  return absl::OkStatus();
}

absl::StatusOr<MooncakeBatch> MooncakePool::BatchOf(std::span<const store::ObjectKey> keys) const {
  MooncakeBatch batch;
  TENURE_ASSIGN_OR_RETURN(batch.client, Client());
  TENURE_ASSIGN_OR_RETURN(batch.keys, KeysOf(keys));
  return batch;
}

// A staging buffer with a piece for each object, one behind the other.
template <typename Object>
absl::StatusOr<MooncakeBatch> MooncakePool::StagedBatch(std::span<const Object> objects) const {
  std::vector<store::ObjectKey> keys;
  for (const Object& object : objects) keys.push_back(object.key);
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, BatchOf(keys));
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<std::byte> staging, staging_->Take());
  batch.memory = staging;
  uint64_t next = reinterpret_cast<uintptr_t>(staging.get());
  for (const Object& object : objects) {
    const MooncakePiece piece{next, SizeOf(object.segments).value_or(0)};
    batch.pieces.Append(std::span(&piece, 1));
    next += piece.size;
  }
  return batch;
}

template <typename MooncakeCopy>
absl::Status MooncakePool::RunStaged(const std::shared_ptr<MooncakeCopy>& copy) {
  return copies_.Run(options_.transfer_timeout, [copy, staging = staging_, options = options_] {
    const MonotonicClock clock;
    const MonotonicTime begin = clock.Now();
    absl::Status status = copy->Run();
    if (MayGoOn(copy->codes(), clock.Now() - begin, options.given_up_after)) {
      staging->Keep(copy->batch().memory.get(), options.late_bytes_max);
    }
    return status;
  });
}

absl::Status MooncakePool::PutPart(std::span<const store::PutObject> objects, std::span<PutAnswer> answers) {
  if (SizeOf(objects[0].segments).value_or(0) > staging_->bytes()) {  // Such an object is a part of its own.
    answers[0] = PutAnswer::kRefusedSize;
    return absl::OkStatus();
  }
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, StagedBatch(objects));
  for (size_t i = 0; i < objects.size(); ++i) {
    auto* to = reinterpret_cast<std::byte*>(batch.pieces[i][0].address);
    for (const store::ConstSegment& segment : objects[i].segments) {
      if (segment.size > 0) std::memcpy(to, segment.data, segment.size);
      to += segment.size;
    }
  }
  const auto put = std::make_shared<MooncakePut>(std::move(batch));
  TENURE_RETURN_IF_ERROR(RunStaged(put));
  std::ranges::copy(put->answers(), answers.begin());
  CountPuts(objects, answers);
  return absl::OkStatus();
}

void MooncakePool::CountPuts(std::span<const store::PutObject> objects, std::span<const PutAnswer> answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    counters_.exists += answers[i] == PutAnswer::kExists;
    counters_.refused_full += answers[i] == PutAnswer::kRefusedFull;
    if (answers[i] != PutAnswer::kStored) continue;
    ++counters_.stored;
    counters_.stored_bytes += static_cast<int64_t>(SizeOf(objects[i].segments).value_or(0));
  }
}

absl::Status MooncakePool::Get(std::span<const store::GetObject> objects, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(objects.size(), answers.size()));
  TENURE_RETURN_IF_ERROR(SizesOf(objects).status());
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  for (size_t begin = 0, end = 0; begin < objects.size(); begin = end) {
    end = PartEnd(objects, begin);
    TENURE_RETURN_IF_ERROR(GetPart(objects.subspan(begin, end - begin), answers.subspan(begin, end - begin)));
  }
  CountGets(answers);
  return absl::OkStatus();
}

absl::Status MooncakePool::GetPart(std::span<const store::GetObject> objects, std::span<KeyAnswer> answers) {
  if (SizeOf(objects[0].segments).value_or(0) > staging_->bytes()) {  // No object of this pool is as large.
    answers[0] = KeyAnswer::kSizeDiffers;
    return absl::OkStatus();
  }
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, StagedBatch(objects));
  const auto get = std::make_shared<MooncakeGet>(std::move(batch));
  TENURE_RETURN_IF_ERROR(RunStaged(get));
  for (size_t i = 0; i < objects.size(); ++i) {
    answers[i] = get->AnswerOf(i);
    if (answers[i] != KeyAnswer::kPresent) continue;
    const auto* from = reinterpret_cast<const std::byte*>(get->batch().pieces[i][0].address);
    for (const store::Segment& segment : objects[i].segments) {
      if (segment.size > 0) std::memcpy(segment.data, from, segment.size);
      from += segment.size;
    }
  }
  return absl::OkStatus();
}

void MooncakePool::CountGets(std::span<const KeyAnswer> answers) {
  const auto keys = static_cast<int64_t>(answers.size());
  counters_.gets += keys;
  counters_.get_misses += keys - std::count(answers.begin(), answers.end(), KeyAnswer::kPresent);
}

absl::Status MooncakePool::Remove(std::span<const store::ObjectKey> keys, std::span<KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(keys.size(), answers.size()));
  std::fill(answers.begin(), answers.end(), KeyAnswer::kUnavailable);
  if (keys.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(const Codes codes, Ask(&MooncakeClient::Remove, keys, Thread::kLane));
  for (size_t i = 0; i < keys.size(); ++i) answers[i] = AnswerOf(codes[i] == 0 ? 1 : codes[i], 1);
  counters_.removed += std::count(answers.begin(), answers.end(), KeyAnswer::kPresent);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MooncakePool::Clear(std::optional<store::NamespaceId> name_space) {
  std::string pattern;
  if (name_space.has_value()) {
    MutexLock lock(mutex_);
    if (name_space->value() >= prefixes_->size()) {
      return InvalidArgument("namespace {} is not of this pool; use OpenNamespace", name_space->value());
    }
    pattern = PatternOf((*prefixes_)[name_space->value()].text);
  }
  TENURE_ASSIGN_OR_RETURN(std::shared_ptr<MooncakeClient> client, Client());
  auto count = std::make_shared<int64_t>(0);
  TENURE_RETURN_IF_ERROR(
      questions_.Run(options_.transfer_timeout, [client = std::move(client), pattern, count]() -> absl::Status {
        TENURE_ASSIGN_OR_RETURN(*count, pattern.empty() ? client->RemoveAll() : client->RemoveByRegex(pattern));
        return absl::OkStatus();
      }));
  if (*count < 0) return Unavailable("Mooncake answered {} to a removal of all keys", *count);
  counters_.removed += *count;
  return *count;
}

store::PoolStats MooncakePool::Stats() const {
  store::PoolStats stats;
  stats.namespaces = namespaces_.size();
  stats.probed_keys_total = counters_.probed;
  stats.probe_hits_total = counters_.probe_hits;
  stats.leased_keys_total = counters_.leased;
  stats.lease_misses_total = counters_.lease_misses;
  stats.stored_total = counters_.stored;
  stats.stored_bytes_total = Bytes(counters_.stored_bytes);
  stats.exists_total = counters_.exists;
  stats.gets_total = counters_.gets;
  stats.get_misses_total = counters_.get_misses;
  stats.removed_total = counters_.removed;
  stats.refused_full_total = counters_.refused_full;
  return stats;
}

}  // namespace tenure::python
