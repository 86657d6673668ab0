#include "tests/conformance/conformance_fixture.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tenure/base/random.h"

namespace tenure::store::conformance {

void PoolConformance::Start(const PoolSetup& setup) {
  under_test_.reset();
  under_test_ = GetParam().make(setup);
  name_space_ = pool().OpenNamespace("model-a@tp0").value();
  next_pressure_key_ = uint64_t{1} << 40;
}

bool PoolConformance::Declares(Difference difference) {
  const std::vector<Difference>& declared = pool().traits().differences;
  return std::find(declared.begin(), declared.end(), difference) != declared.end();
}

ObjectKey PoolConformance::Key(uint64_t number, NamespaceId name_space) {
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = Random::Mix(number * words.size() + i + 1);
  std::array<uint8_t, sizeof words> bytes{};
  std::memcpy(bytes.data(), words.data(), sizeof words);
  const size_t size = number % 2 == 0 ? 16 : 32;
  return {.name_space = name_space, .hash = kv::BlockHash::FromTrusted(std::span(bytes).first(size))};
}

std::vector<ObjectKey> PoolConformance::Keys(uint64_t first, uint64_t count) const {
  std::vector<ObjectKey> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(Key(first + i));
  return keys;
}

PutAnswer PoolConformance::Put(const ObjectKey& key, std::optional<ObjectKey> parent, int64_t size, int version) {
  std::vector<std::byte> bytes;
  if (GetParam().has_bytes) bytes = Pattern(key, size, version);
  const std::array<ConstSegment, 1> segments = {
      {{.data = bytes.empty() ? nullptr : bytes.data(), .size = static_cast<size_t>(size)}}};
  const std::array<PutObject, 1> objects = {{{.key = key, .segments = segments, .parent = parent}}};
  std::array<PutAnswer, 1> answers = {PutAnswer::kNotStored};
  const absl::Status status = pool().Put(objects, answers);
  EXPECT_TRUE(status.ok()) << status;
  return answers[0];
}

void PoolConformance::MustStore(const ObjectKey& key, std::optional<ObjectKey> parent) {
  ASSERT_EQ(Put(key, parent), PutAnswer::kStored);
}

void PoolConformance::MustStoreChain(uint64_t first, uint64_t count) {
  for (uint64_t i = first; i < first + count; ++i) {
    Advance(kTick);
    MustStore(Key(i), i == first ? std::nullopt : std::optional(Key(i - 1)));
  }
}

int PoolConformance::WritePressure(int count) {
  int stored = 0;
  for (int i = 0; i < count; ++i) {
    Advance(absl::Milliseconds(1));
    stored += Put(Key(next_pressure_key_++)) == PutAnswer::kStored;
    Settle();
  }
  return stored;
}

KeyAnswer PoolConformance::Probe(const ObjectKey& key) {
  std::array<KeyAnswer, 1> answers = {KeyAnswer::kUnavailable};
  const absl::Status status = pool().Probe(std::array{key}, answers);
  EXPECT_TRUE(status.ok()) << status;
  return answers[0];
}

int PoolConformance::CountPresent(const std::vector<ObjectKey>& keys) {
  std::vector<KeyAnswer> answers(keys.size());
  const absl::Status status = pool().Probe(keys, answers);
  EXPECT_TRUE(status.ok()) << status;
  return static_cast<int>(std::count(answers.begin(), answers.end(), KeyAnswer::kPresent));
}

Lease PoolConformance::MustLease(const std::vector<ObjectKey>& keys, absl::Duration ttl) {
  std::vector<KeyAnswer> answers(keys.size());
  absl::StatusOr<Lease> lease = pool().AcquireLease(keys, ttl, answers);
  if (!lease.ok()) {
    ADD_FAILURE() << lease.status();
    return Lease();
  }
  EXPECT_EQ(lease->size(), keys.size());
  EXPECT_EQ(std::count(answers.begin(), answers.end(), KeyAnswer::kPresent), static_cast<int64_t>(keys.size()));
  return *std::move(lease);
}

KeyAnswer PoolConformance::Get(const ObjectKey& key, int64_t size, int version) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  const std::array<Segment, 1> segments = {{{.data = bytes.data(), .size = bytes.size()}}};
  const std::array<GetObject, 1> objects = {{{.key = key, .segments = segments}}};
  std::array<KeyAnswer, 1> answers = {KeyAnswer::kUnavailable};
  const absl::Status status = pool().Get(objects, answers);
  EXPECT_TRUE(status.ok()) << status;
  if (answers[0] == KeyAnswer::kPresent && GetParam().has_bytes) {
    EXPECT_TRUE(bytes == Pattern(key, size, version)) << "other bytes than were put under this key";
  }
  return answers[0];
}

KeyAnswer PoolConformance::Remove(const ObjectKey& key) {
  std::array<KeyAnswer, 1> answers = {KeyAnswer::kUnavailable};
  const absl::Status status = pool().Remove(std::array{key}, answers);
  EXPECT_TRUE(status.ok()) << status;
  return answers[0];
}

std::vector<std::byte> PoolConformance::Pattern(const ObjectKey& key, int64_t size, int version) {
  Random random(key.hash.Prefix64() ^
                Random::Mix(key.name_space.value() * uint64_t{1000} + static_cast<uint64_t>(version)));
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace tenure::store::conformance
