// What a process that is written to says of a post, on the wire of the transports that ask it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tenure/base/status.h"

namespace tenure::transfer {

enum class Verdict : uint64_t {
  kWritten = 0,        // All bytes of the post.
  kOtherReceiver = 1,  // Another process has the port now.
  kOutside = 2,        // A part lies outside of registered memory, or the parts are more than the total.
};

// As the result of the post. Unavailable for a verdict that this version does not know.
inline absl::Status VerdictStatus(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWritten:
      return absl::OkStatus();
    case Verdict::kOtherReceiver:
      return Unavailable("the peer has gone, and another process has its port");
    case Verdict::kOutside:
      return InvalidArgument("the peer refuses a write outside of the memory that it has registered");
  }
  return Unavailable("the peer's answer is none of this version; let both sides run one version of Tenure");
}

}  // namespace tenure::transfer
