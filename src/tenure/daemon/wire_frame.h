// The frame around every message between the daemon and its clients (docs/reference/daemon-wire.md). Pure functions.
//
// A frame is a header of 12 bytes and a body of at most kBodyBytesMax. A request is answered by one frame with the same
// number, of type `request | kReplyBit` or kError, but for the three that say "done with this": those get no answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/daemon/wire_archive.h"

namespace tenure::daemon {

inline constexpr uint16_t kWireMajor = 1;
inline constexpr uint16_t kWireMinor = 0;
inline constexpr uint32_t kHelloMagic = 0x52554E54;  // "TNUR"
inline constexpr size_t kBodyBytesMax = size_t{1} << 20;
inline constexpr size_t kMessageKeysMax = 16'384;
inline constexpr size_t kUnsentBytesMax = size_t{4} << 20;  // Answers that a client has not read.
inline constexpr size_t kErrorTextMax = 1024;

enum class MessageType : uint16_t {
  kHello = 1,
  kOpenNamespace = 2,
  kProbe = 3,
  kLease = 4,
  kReleaseLease = 5,  // No answer.
  kReserve = 6,
  kCommit = 7,
  kAbandon = 8,  // No answer.
  kPin = 9,
  kUnpin = 10,  // No answer.
  kRemove = 11,
  kClear = 12,
  kStats = 13,
  kError = 0x7FFF,
};
inline constexpr uint16_t kReplyBit = 0x8000;

struct FrameHeader {
  static constexpr size_t kBytes = 12;
  uint32_t body_bytes = 0;
  uint16_t type = 0;
  uint16_t reserved = 0;  // 0 when sent, not looked at when read.
  uint32_t request = 0;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.body_bytes);
    archive.Number(self.type);
    archive.Number(self.reserved);
    archive.Number(self.request);
  }
};

// The header at the start of `bytes`, nothing while it is incomplete; DataLoss when it asks for too much.
absl::StatusOr<std::optional<FrameHeader>> ParseHeader(std::span<const std::byte> bytes);

enum class ErrorCode : uint8_t {
  kInvalidArgument = 1,
  kResourceExhausted = 2,
  kUnavailable = 3,   // The daemon is about to end.
  kUnsupported = 4,   // This minor version does not know the message.
  kVersion = 5,       // Another major version. The connection ends.
  kProtocol = 6,      // Malformed, or out of turn. The connection ends.
  kNotPermitted = 7,  // This user may not connect. The connection ends.
};

struct ErrorReply {
  static constexpr uint16_t kType = static_cast<uint16_t>(MessageType::kError);
  ErrorCode code = ErrorCode::kProtocol;
  std::string text;

  template <typename Self, typename Archive>
  static void Fields(Self& self, Archive& archive) {
    archive.Number(self.code);
    archive.Text(self.text, kErrorTextMax);
  }
};

// Writes the length of the frame that fills `frame` into its header.
void SetBodyBytes(std::span<std::byte> frame);

// Appends a whole frame to `out`. Precondition: the body is not above kBodyBytesMax; callers split by the message's
// maxima.
template <typename M>
void AppendFrame(const M& message, uint32_t request, std::vector<std::byte>& out) {
  const size_t start = out.size();
  WireWriter writer(out);
  FrameHeader header{.body_bytes = 0, .type = M::kType, .reserved = 0, .request = request};
  FrameHeader::Fields(header, writer);
  M::Fields(message, writer);
  SetBodyBytes(std::span(out).subspan(start));
}

// False when the body is not exactly such a message; `message` is unspecified then.
template <typename M>
bool DecodeBody(std::span<const std::byte> body, M& message) {
  WireReader reader(body);
  M::Fields(message, reader);
  return reader.Complete();
}

// As the peer's status, with the text it sent.
absl::Status ToStatus(const ErrorReply& error);

}  // namespace tenure::daemon
