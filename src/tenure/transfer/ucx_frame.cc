#include "tenure/transfer/ucx_frame.h"

#include <cstdint>
#include <cstring>

#include "tenure/base/random.h"
#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

constexpr std::string_view kMagic = "TUCX1";
constexpr size_t kHeadBytes = kMagic.size() + sizeof(uint64_t);

std::string Head(std::string_view bytes) {
  uint64_t sum = Random::Mix(bytes.size());
  for (const char byte : bytes) sum = Random::Mix(sum ^ static_cast<uint8_t>(byte)) + 1;
  std::string head(kMagic);
  for (int shift = 0; shift < 64; shift += 8) head.push_back(static_cast<char>(sum >> shift & 0xFF));
  return head;
}

}  // namespace

std::string FrameUcxBytes(std::string_view bytes) { return Head(bytes).append(bytes); }

absl::StatusOr<std::string> UnframeUcxBytes(std::string_view what, std::string_view frame) {
  if (frame.size() > kHeadBytes && Head(frame.substr(kHeadBytes)) == frame.substr(0, kHeadBytes)) {
    return std::string(frame.substr(kHeadBytes));
  }
  return InvalidArgument(
      "the peer's {} ({} bytes) is none of the ucx transport; let both sides run one version of "
      "Tenure with one transport",
      what, frame.size());
}

}  // namespace tenure::transfer
