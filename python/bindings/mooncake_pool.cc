#include "bindings/mooncake_pool.h"

#include <algorithm>
#include <cstring>
#include <map>
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

KeyAnswer GetAnswerOf(int64_t code, size_t size) {
  if (code >= 0) return static_cast<uint64_t>(code) == size ? KeyAnswer::kPresent : KeyAnswer::kSizeDiffers;
  if (code == mooncake_code::kBadParameters) return KeyAnswer::kSizeDiffers;
  const bool absent =
      code == mooncake_code::kNotFound || code == mooncake_code::kNotReady || code == mooncake_code::kLeaseExpired;
  return absent ? KeyAnswer::kAbsent : KeyAnswer::kUnavailable;
}

template <typename Segments>
absl::StatusOr<size_t> SizeOf(const Segments& segments) {
  size_t size = 0;
  for (const auto& segment : segments) {
    if (segment.data == nullptr && segment.size > 0) return InvalidArgument("a segment has no address; give one");
    if (__builtin_add_overflow(size, segment.size, &size) || size > (uint64_t{1} << 62)) {
      return InvalidArgument("segments add up to more than 2^62 bytes; give the object's size");
    }
  }
  if (size == 0) return InvalidArgument("segments add up to 0 bytes; an object has at least 1");
  return size;
}

template <typename Object>
absl::StatusOr<std::vector<size_t>> SizesOf(std::span<const Object> objects) {
  std::vector<size_t> sizes;
  for (const Object& object : objects) {
    TENURE_ASSIGN_OR_RETURN(const size_t size, SizeOf(object.segments));
    sizes.push_back(size);
  }
  return sizes;
}

absl::Status CheckBatch(size_t keys, size_t answers) {
  if (keys != answers) return InvalidArgument("answers has {} entries for {} keys; give one a key", answers, keys);
  if (keys > store::Pool::kBatchKeysMax) {
    return InvalidArgument("{} keys in one call; use at most {}", keys, store::Pool::kBatchKeysMax);
  }
  return absl::OkStatus();
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

// Everything that a put reads once its caller may be gone.
struct PutJob {
  std::shared_ptr<MooncakeClient> client;
  std::shared_ptr<std::byte> staging;
  MooncakeKeys keys;
  std::vector<MooncakeClient::Piece> pieces;
  std::vector<PutAnswer> answers;
};

// Mooncake answers 0 for a put that met an object or another writer, so what is there is asked before and after.
absl::Status RunPut(PutJob& job) {
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> before, job.client->Probe(job.keys));
  std::vector<size_t> put;
  MooncakeKeys keys;
  std::vector<MooncakeClient::Piece> pieces;
  std::map<MooncakeKey, size_t> first_of;
  for (size_t i = 0; i < job.keys.size(); ++i) {
    if (before[i] == 1) {
      TENURE_ASSIGN_OR_RETURN(const int64_t size, job.client->SizeOf(job.keys[i]));
      job.answers[i] = size < 0                                            ? PutAnswer::kNotStored
                       : static_cast<uint64_t>(size) == job.pieces[i].size ? PutAnswer::kExists
                                                                           : PutAnswer::kSizeDiffers;
    } else if (first_of.emplace(job.keys[i], i).second) {
      put.push_back(i);
      keys.Append(job.keys[i]);
      pieces.push_back(job.pieces[i]);
    }
  }
  if (put.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> codes, job.client->Put(keys, pieces));
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> after, job.client->Probe(keys));
  for (size_t i = 0; i < put.size(); ++i) {
    if (codes[i] == mooncake_code::kNoSpace) {
      job.answers[put[i]] = PutAnswer::kRefusedFull;
    } else {
      job.answers[put[i]] = codes[i] == 0 && after[i] == 1 ? PutAnswer::kStored : PutAnswer::kNotStored;
    }
  }
  // The second of two equal keys is there only if the first is.
  for (size_t i = 0; i < job.keys.size(); ++i) {
    const auto first = first_of.find(job.keys[i]);
    if (first == first_of.end() || first->second == i) continue;
    job.answers[i] = IsKept(job.answers[first->second]) ? PutAnswer::kExists : PutAnswer::kNotStored;
  }
  return absl::OkStatus();
}

struct GetJob {
  std::shared_ptr<MooncakeClient> client;
  std::shared_ptr<std::byte> staging;
  MooncakeKeys keys;
  std::vector<MooncakeClient::Piece> pieces;
  std::vector<int64_t> codes;
};

absl::Status RunGet(GetJob& job) {
  TENURE_ASSIGN_OR_RETURN(job.codes, job.client->Get(job.keys, job.pieces));
  // A piece longer than its object fails as a transfer does; only the size tells the two apart.
  for (size_t i = 0; i < job.keys.size(); ++i) {
    if (job.codes[i] != mooncake_code::kTransferFailed) continue;
    TENURE_ASSIGN_OR_RETURN(const int64_t size, job.client->SizeOf(job.keys[i]));
    if (size >= 0 && static_cast<uint64_t>(size) != job.pieces[i].size) job.codes[i] = mooncake_code::kBadParameters;
  }
  return absl::OkStatus();
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

absl::Status MooncakePool::PutPart(std::span<const store::PutObject> objects, std::span<PutAnswer> answers) {
  std::vector<store::ObjectKey> keys;
  for (const store::PutObject& object : objects) keys.push_back(object.key);
  TENURE_ASSIGN_OR_RETURN(const std::vector<size_t> sizes, SizesOf(objects));
  if (sizes[0] > staging_->bytes()) {  // Such an object is a part of its own.
    answers[0] = PutAnswer::kRefusedSize;
    return absl::OkStatus();
  }
  auto job = std::make_shared<PutJob>();
  TENURE_ASSIGN_OR_RETURN(job->client, Client());
  TENURE_ASSIGN_OR_RETURN(job->keys, KeysOf(keys));
  TENURE_ASSIGN_OR_RETURN(job->staging, staging_->Take());
  std::byte* next = job->staging.get();
  for (size_t i = 0; i < objects.size(); ++i) {
    job->pieces.push_back({reinterpret_cast<uintptr_t>(next), sizes[i]});
    for (const store::ConstSegment& segment : objects[i].segments) {
      if (segment.size > 0) std::memcpy(next, segment.data, segment.size);
      next += segment.size;
    }
  }
  job->answers.assign(objects.size(), PutAnswer::kNotStored);
  TENURE_RETURN_IF_ERROR(copies_.Run(options_.transfer_timeout, [job] { return RunPut(*job); }));
  std::copy(job->answers.begin(), job->answers.end(), answers.begin());
  Count(objects, answers);
  return absl::OkStatus();
}

void MooncakePool::Count(std::span<const store::PutObject> objects, std::span<const PutAnswer> answers) {
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
  counters_.gets += static_cast<int64_t>(answers.size());
  counters_.get_misses +=
      static_cast<int64_t>(answers.size()) - std::count(answers.begin(), answers.end(), KeyAnswer::kPresent);
  return absl::OkStatus();
}

absl::Status MooncakePool::GetPart(std::span<const store::GetObject> objects, std::span<KeyAnswer> answers) {
  std::vector<store::ObjectKey> keys;
  for (const store::GetObject& object : objects) keys.push_back(object.key);
  TENURE_ASSIGN_OR_RETURN(const std::vector<size_t> sizes, SizesOf(objects));
  if (sizes[0] > staging_->bytes()) {  // No object of this pool is as large.
    answers[0] = KeyAnswer::kSizeDiffers;
    return absl::OkStatus();
  }
  auto job = std::make_shared<GetJob>();
  TENURE_ASSIGN_OR_RETURN(job->client, Client());
  TENURE_ASSIGN_OR_RETURN(job->keys, KeysOf(keys));
  TENURE_ASSIGN_OR_RETURN(job->staging, staging_->Take());
  uint64_t next = reinterpret_cast<uintptr_t>(job->staging.get());
  for (const size_t size : sizes) {
    job->pieces.push_back({next, size});
    next += size;
  }
  TENURE_RETURN_IF_ERROR(copies_.Run(options_.transfer_timeout, [job] { return RunGet(*job); }));
  for (size_t i = 0; i < objects.size(); ++i) {
    answers[i] = GetAnswerOf(job->codes[i], sizes[i]);
    if (answers[i] != KeyAnswer::kPresent) continue;
    const auto* from = reinterpret_cast<const std::byte*>(job->pieces[i].address);
    for (const store::Segment& segment : objects[i].segments) {
      if (segment.size > 0) std::memcpy(segment.data, from, segment.size);
      from += segment.size;
    }
  }
  return absl::OkStatus();
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
