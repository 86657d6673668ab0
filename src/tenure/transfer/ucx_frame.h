// Bytes of UCX on their way to a peer: worker addresses and memory keys, framed with a version and a checksum.
//
// UCX reads what it is given without a length and trusts it, so only bytes that arrived whole reach it. That is no
// defence against a peer who means harm; P and D trust each other with their memory.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::transfer {

std::string FrameUcxBytes(std::string_view bytes);
// InvalidArgument for what FrameUcxBytes has not written; `what` names it.
absl::StatusOr<std::string> UnframeUcxBytes(std::string_view what, std::string_view frame);

}  // namespace tenure::transfer
