// Where the ucx transport of a process is reached, as it travels in pulls.
//
// `receiver` names the process's transport: a port may soon be another process's, whose memory is not what a pull of
// the earlier one speaks of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::transfer {

struct UcxAddress {
  std::string host;  // Numeric.
  uint16_t port = 0;
  uint64_t receiver = 0;
  bool rdma = false;           // A network card that writes to memory by itself.
  bool device_memory = false;  // A GPU's memory is registered.

  friend bool operator==(const UcxAddress&, const UcxAddress&) = default;
};

// Framed (ucx_frame.h).
std::string EncodeUcxAddress(const UcxAddress& address);
// InvalidArgument for what EncodeUcxAddress has not written.
absl::StatusOr<UcxAddress> DecodeUcxAddress(std::string_view bytes);

}  // namespace tenure::transfer
