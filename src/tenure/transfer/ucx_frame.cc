#include "tenure/transfer/ucx_frame.h"

#include "tenure/transfer/address_frame.h"

namespace tenure::transfer {
namespace {

constexpr std::string_view kMagic = "TUCX2";

}  // namespace

std::string FrameUcxBytes(std::string_view bytes) { return FrameBytes(kMagic, bytes); }

absl::StatusOr<std::string> UnframeUcxBytes(std::string_view what, std::string_view frame) {
  return UnframeBytes(kMagic, "ucx", what, frame);
}

}  // namespace tenure::transfer
