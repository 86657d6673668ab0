#include "tenure/daemon/wire_frame.h"

#include <algorithm>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::daemon {

absl::StatusOr<std::optional<FrameHeader>> ParseHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < FrameHeader::kBytes) return std::optional<FrameHeader>();
  WireReader reader(bytes.first(FrameHeader::kBytes));
  FrameHeader header;
  FrameHeader::Fields(header, reader);
  if (header.body_bytes > kBodyBytesMax) {
    return BadData("a message of type {} with {} bytes; the most is {}", header.type, header.body_bytes, kBodyBytesMax);
  }
  return std::optional<FrameHeader>(header);
}

void SetBodyBytes(std::span<std::byte> frame) {
  const size_t body = frame.size() - FrameHeader::kBytes;
  TENURE_CHECK(body <= kBodyBytesMax);
  std::vector<std::byte> length;
  WireWriter(length).Number(static_cast<uint32_t>(body));
  std::copy(length.begin(), length.end(), frame.begin());
}

absl::Status ToStatus(const ErrorReply& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return InvalidArgument("{}", error.text);
    case ErrorCode::kResourceExhausted:
      return ResourceExhausted("{}", error.text);
    case ErrorCode::kUnavailable:
      return Unavailable("{}", error.text);
    case ErrorCode::kUnsupported:
      return absl::UnimplementedError(error.text);
    case ErrorCode::kNotPermitted:
      return absl::PermissionDeniedError(error.text);
    case ErrorCode::kVersion:
    case ErrorCode::kProtocol:
      return FailedPrecondition("{}", error.text);
  }
  return BadData("the daemon sent error code {} ({})", static_cast<int>(error.code), error.text);
}

}  // namespace tenure::daemon
