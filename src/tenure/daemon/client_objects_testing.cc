#include "tenure/daemon/client_objects_testing.h"

#include <array>
#include <cstring>

#include "tenure/base/check.h"
#include "tenure/base/random.h"

namespace tenure::daemon {

using store::ObjectKey;

ObjectKey TestKey(store::NamespaceId name_space, uint64_t number) {
  const std::array<uint64_t, 2> words = {Random::Mix(number + 1), Random::Mix(~number)};
  std::array<uint8_t, sizeof words> bytes{};
  std::memcpy(bytes.data(), words.data(), sizeof words);
  return {.name_space = name_space, .hash = kv::BlockHash::FromTrusted(bytes)};
}

std::vector<std::byte> TestBytes(const ObjectKey& key, size_t size) {
  Random random(key.hash.Prefix64());
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

store::PutAnswer PutOne(store::Pool& pool, const ObjectKey& key, size_t size) {
  return PutAll(pool, {key}, size, false)[0];
}

store::KeyAnswer GetOne(store::Pool& pool, const ObjectKey& key, size_t size) {
  std::vector<std::byte> bytes(size);
  const std::array<store::Segment, 2> segments = {
      {{.data = bytes.data(), .size = size / 3}, {.data = bytes.data() + size / 3, .size = size - size / 3}}};
  const std::array<store::GetObject, 1> objects = {{{.key = key, .segments = segments}}};
  std::array<store::KeyAnswer, 1> answers = {store::KeyAnswer::kUnavailable};
  const absl::Status status = pool.Get(objects, answers);
  TENURE_CHECK(status.ok() || absl::IsUnavailable(status));
  TENURE_CHECK(answers[0] != store::KeyAnswer::kPresent || bytes == TestBytes(key, size));
  return answers[0];
}

std::vector<store::PutAnswer> PutAll(store::Pool& pool, const std::vector<ObjectKey>& keys, size_t size, bool chain) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::array<store::ConstSegment, 1>> segments;
  for (const ObjectKey& key : keys) bytes.push_back(TestBytes(key, size));
  for (const auto& one : bytes) segments.push_back({{{.data = one.data(), .size = one.size()}}});
  std::vector<store::PutObject> objects;
  for (size_t i = 0; i < keys.size(); ++i) {
    objects.push_back({.key = keys[i],
                       .segments = segments[i],
                       .parent = chain && i > 0 ? std::optional(keys[i - 1]) : std::nullopt,
                       .kind = store::ObjectKind::kFull});
  }
  std::vector<store::PutAnswer> answers(keys.size());
  const absl::Status status = pool.Put(objects, answers);
  TENURE_CHECK(status.ok() || absl::IsUnavailable(status));
  return answers;
}

}  // namespace tenure::daemon
