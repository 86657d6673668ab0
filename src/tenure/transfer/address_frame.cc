#include "tenure/transfer/address_frame.h"

#include <cstdint>

#include "tenure/base/random.h"
#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

std::string Head(std::string_view magic, std::string_view bytes) {
  uint64_t sum = Random::Mix(bytes.size());
  for (const char byte : bytes) sum = Random::Mix(sum ^ static_cast<uint8_t>(byte)) + 1;
  std::string head(magic);
  for (int shift = 0; shift < 64; shift += 8) head.push_back(static_cast<char>(sum >> shift & 0xFF));
  return head;
}

}  // namespace

std::string FrameBytes(std::string_view magic, std::string_view bytes) { return Head(magic, bytes).append(bytes); }

absl::StatusOr<std::string> UnframeBytes(std::string_view magic, std::string_view kind, std::string_view what,
                                         std::string_view frame) {
  const size_t head_bytes = magic.size() + sizeof(uint64_t);
  if (frame.size() > head_bytes && Head(magic, frame.substr(head_bytes)) == frame.substr(0, head_bytes)) {
    return std::string(frame.substr(head_bytes));
  }
  return InvalidArgument(
      "the peer's {} ({} bytes) is none of the {} transport; let both sides run one version of "
      "Tenure with one transport",
      what, frame.size(), kind);
}

}  // namespace tenure::transfer
