// Any bytes as any message, as either side reads them: no crash, no memory beyond the message's maxima, and what was
// understood is written back as it was read.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tenure/daemon/wire_messages.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {
namespace {

template <typename M>
void RoundTrip(std::span<const std::byte> body) {
  M message;
  if (!DecodeBody(body, message)) return;
  std::vector<std::byte> frame;
  AppendFrame(message, 1, frame);
  const auto again = std::span<const std::byte>(frame).subspan(FrameHeader::kBytes);
  if (!std::equal(again.begin(), again.end(), body.begin(), body.end())) std::abort();
}

template <typename... Ms>
void RoundTripAs(uint8_t which, std::span<const std::byte> body) {
  uint8_t at = 0;
  ((at++ == which ? RoundTrip<Ms>(body) : void()), ...);
}

}  // namespace
}  // namespace tenure::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenure::daemon;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = ParseHeader(bytes.subspan(1));
  if (header.ok() && header->has_value() && (*header)->body_bytes > kBodyBytesMax) std::abort();
  RoundTripAs<HelloRequest, HelloReply, OpenNamespaceRequest, OpenNamespaceReply, ProbeRequest, ProbeReply,
              LeaseRequest, LeaseReply, ReleaseLeaseRequest, ReserveRequest, ReserveReply, CommitRequest, CommitReply,
              AbandonRequest, PinRequest, PinReply, UnpinRequest, RemoveRequest, RemoveReply, ClearRequest, ClearReply,
              StatsReply, ErrorReply>(data[0] % 23, bytes.subspan(1));
  return 0;
}
