// The messages but for those of a put (wire_put.h): each with its fields in the order of the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenure/daemon/stats_fields.h"
#include "tenure/daemon/wire_frame.h"
#include "tenure/store/pool.h"

namespace tenure::daemon {

inline constexpr size_t kKeyBytesMax = 4 + 1 + kv::BlockHash::kSizeMax;
inline constexpr size_t kKeyBytesMin = 4 + 1 + 16;
inline constexpr uint64_t kNoOffset = UINT64_MAX;

struct HelloRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kHello);
  uint32_t magic = kHelloMagic;
  uint16_t major = kWireMajor;
  uint16_t minor = kWireMinor;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.magic);
    archive.Number(self.major);
    archive.Number(self.minor);
  }
};

// Comes with the descriptor of the pool's memory (SCM_RIGHTS on its first byte).
struct HelloReply {
  static constexpr uint16_t kType = HelloRequest::kType | kReplyBit;
  uint16_t major = kWireMajor;
  uint16_t minor = kWireMinor;
  uint8_t closed = 0;           // The pool's mode.
  uint64_t memory_bytes = 0;    // Size of the memory behind the descriptor.
  uint64_t held_bytes_max = 0;  // What one client may have reserved and pinned.
  uint64_t object_bytes_max = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.major);
    archive.Number(self.minor);
    archive.Number(self.closed);
    archive.Number(self.memory_bytes);
    archive.Number(self.held_bytes_max);
    archive.Number(self.object_bytes_max);
  }
};

struct OpenNamespaceRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kOpenNamespace);
  std::string prefix;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Text(self.prefix, store::Pool::kNamespaceNameMax);
  }
};
struct OpenNamespaceReply {
  static constexpr uint16_t kType = OpenNamespaceRequest::kType | kReplyBit;
  uint32_t name_space = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.name_space);
  }
};

template <typename Archive, typename List>
void KeyFields(Archive& archive, List& keys) {
  archive.List(keys, kMessageKeysMax, kKeyBytesMin, [](Archive& items, auto& key) { items.Key(key); });
}
template <typename Archive, typename List>
void NumberFields(Archive& archive, List& numbers, size_t bytes_each) {
  archive.List(numbers, kMessageKeysMax, bytes_each, [](Archive& items, auto& number) { items.Number(number); });
}

struct ProbeRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kProbe);
  std::vector<store::ObjectKey> keys;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    KeyFields(archive, self.keys);
  }
};
struct ProbeReply {
  static constexpr uint16_t kType = ProbeRequest::kType | kReplyBit;
  std::vector<store::KeyAnswer> answers;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    NumberFields(archive, self.answers, 1);
  }
};

struct LeaseRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kLease);
  int64_t ttl_nanoseconds = 0;
  std::vector<store::ObjectKey> keys;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.ttl_nanoseconds);
    KeyFields(archive, self.keys);
  }
};
struct LeaseReply {
  static constexpr uint16_t kType = LeaseRequest::kType | kReplyBit;
  uint64_t lease = 0;  // 0: no key was leased.
  std::vector<store::KeyAnswer> answers;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.lease);
    NumberFields(archive, self.answers, 1);
  }
};
struct ReleaseLeaseRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kReleaseLease);
  std::vector<uint64_t> leases;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    NumberFields(archive, self.leases, 8);
  }
};

struct PinRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kPin);
  std::vector<store::ObjectKey> keys;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    KeyFields(archive, self.keys);
  }
};
// The offset is kNoOffset where there is nothing to read.
struct PinnedPlace {
  static constexpr size_t kBytes = 1 + 8 + 8 + 8;
  store::KeyAnswer answer = store::KeyAnswer::kAbsent;
  uint64_t offset = kNoOffset;
  uint64_t size = 0;
  uint64_t digest = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.answer);
    archive.Number(self.offset);
    archive.Number(self.size);
    archive.Number(self.digest);
  }
};
struct PinReply {
  static constexpr uint16_t kType = PinRequest::kType | kReplyBit;
  uint64_t batch = 0;  // Names what was pinned, for unpin.
  std::vector<PinnedPlace> places;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.batch);
    archive.List(self.places, kMessageKeysMax, PinnedPlace::kBytes,
                 [](Archive& items, auto& place) { PinnedPlace::Fields(place, items); });
  }
};
// The whole batch is no longer read.
struct UnpinRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kUnpin);
  uint64_t batch = 0;
  // Places in the batch whose bytes did not have their digest: those very objects are removed, whatever lies under
  // their keys by now.
  std::vector<uint32_t> corrupt;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.batch);
    NumberFields(archive, self.corrupt, 4);
  }
};

struct RemoveRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kRemove);
  std::vector<store::ObjectKey> keys;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    KeyFields(archive, self.keys);
  }
};
struct RemoveReply {
  static constexpr uint16_t kType = RemoveRequest::kType | kReplyBit;
  std::vector<store::KeyAnswer> answers;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    NumberFields(archive, self.answers, 1);
  }
};

struct ClearRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kClear);
  uint8_t one_namespace = 0;  // 0: every object of the pool.
  uint32_t name_space = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.one_namespace);
    archive.Number(self.name_space);
  }
};
struct ClearReply {
  static constexpr uint16_t kType = ClearRequest::kType | kReplyBit;
  int64_t objects = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.objects);
  }
};

struct StatsRequest {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kStats);

  template <typename Self, typename Archive>
  static void Fields(Self& /*self*/, Archive& /*archive*/) {}
};
struct StatsReply {
  static constexpr uint16_t kType = StatsRequest::kType | kReplyBit;
  store::PoolStats stats;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    VisitPoolStats(self.stats, [&archive](const MetricInfo& /*info*/, auto& figure) { archive.Number(figure); });
  }
};

}  // namespace tenure::daemon
