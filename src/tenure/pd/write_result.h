// How a posted write ended: what a transport tells the producer that asked for it (pd_protocol spec §9, edges 10 and
// 22).
#pragma once

#include "absl/status/status.h"

namespace tenure::pd {

struct WriteResult {
  absl::Status status;  // OK: every byte is in D's memory.
  // False, for a failure only: bytes may still land. D's blocks are not to be used for something else until the peer's
  // side is known to be closed, or for a bound of time.
  bool settled = true;
};

}  // namespace tenure::pd
