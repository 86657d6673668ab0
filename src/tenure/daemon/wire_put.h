// The messages of a put: reserve a place, write it through the shared memory, commit it or give it up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenure/daemon/wire_messages.h"
#include "tenure/store/pool.h"

namespace tenure::daemon {

struct ReserveObject {
  static constexpr size_t kBytesMin = kKeyBytesMin + 8 + 1 + 1;
  static constexpr size_t kBytesMax = 2 * kKeyBytesMax + 8 + 1 + 1;
  store::ObjectKey key;
  uint64_t size = 0;
  store::ObjectKind kind = store::ObjectKind::kOther;
  uint8_t has_parent = 0;
  store::ObjectKey parent;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Key(self.key);
    archive.Number(self.size);
    archive.Number(self.kind);
    archive.Number(self.has_parent);
    if (self.has_parent != 0) archive.Key(self.parent);
  }
};
// So that a message of the longest objects stays within the frame.
inline constexpr size_t kReserveObjectsMax = (kBodyBytesMax - 4) / ReserveObject::kBytesMax;

struct ReserveRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kReserve);
  std::vector<ReserveObject> objects;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.List(self.objects, kMessageKeysMax, ReserveObject::kBytesMin,
                 [](Archive& items, auto& object) { ReserveObject::Fields(object, items); });
  }
};
// The place of object i, or kNoOffset where its answer is final and there is nothing to write.
struct ReservedPlace {
  store::PutAnswer answer = store::PutAnswer::kNotStored;
  uint64_t offset = kNoOffset;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.answer);
    archive.Number(self.offset);
  }
};
struct ReserveReply {
  static constexpr uint16_t kType = ReserveRequest::kType | kReplyBit;
  uint64_t batch = 0;  // Names what was reserved, for commit and abandon.
  std::vector<ReservedPlace> places;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.batch);
    archive.List(self.places, kMessageKeysMax, 9,
                 [](Archive& items, auto& place) { ReservedPlace::Fields(place, items); });
  }
};

// One object of a batch, by its place in the reserve message, with the digest of what was written.
struct CommitObject {
  uint32_t ordinal = 0;
  uint64_t digest = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.ordinal);
    archive.Number(self.digest);
  }
};
struct CommitRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kCommit);
  uint64_t batch = 0;
  std::vector<CommitObject> objects;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.batch);
    archive.List(self.objects, kMessageKeysMax, 12,
                 [](Archive& items, auto& object) { CommitObject::Fields(object, items); });
  }
};
struct CommitReply {
  static constexpr uint16_t kType = CommitRequest::kType | kReplyBit;
  std::vector<store::PutAnswer> answers;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    NumberFields(archive, self.answers, 1);
  }
};
// What is left of a batch is given up.
struct AbandonRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kAbandon);
  uint64_t batch = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.batch);
  }
};

}  // namespace tenure::daemon
