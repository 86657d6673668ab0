// Where the tcp transport of a process is reached, as it travels in pulls.
//
// `receiver` names the process's transport, at random: a port may soon be another process's, whose memory is not what a
// pull of the earlier one speaks of; and who does not know it is not listened to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::transfer {

struct TcpAddress {
  std::string host;  // Numeric.
  uint16_t port = 0;
  uint64_t receiver = 0;

  friend bool operator==(const TcpAddress&, const TcpAddress&) = default;
};

// Framed (address_frame.h).
std::string EncodeTcpAddress(const TcpAddress& address);
// InvalidArgument for what EncodeTcpAddress has not written.
absl::StatusOr<TcpAddress> DecodeTcpAddress(std::string_view bytes);

}  // namespace tenure::transfer
