// Keys of CURVE, ZeroMQ's encryption, as 40 characters of Z85.
//
// P has a pair; D has P's public key, and makes a pair of its own for each process. A side with keys never talks to one
// without, nor to one with other keys: the handshake fails and no message passes. Who has P's public key may connect.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::handoff {

struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

// Unavailable where this ZeroMQ was built without CURVE.
absl::StatusOr<CurveKeys> MakeCurveKeys();

// InvalidArgument, with `what` but not the key, for a text that is none; Unavailable as above.
absl::Status CheckCurveKey(std::string_view what, const std::string& key);

}  // namespace tenure::handoff
