// What a worker's side channel is known by: "tcp://HOST:PORT", an IPv6 address in brackets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenure::pd {

struct WorkerAddress {
  std::string host;  // Without brackets; not looked at.
  uint16_t port = 0;
};

// Of such a text, with a port from 1 to 65535; nothing of another. Addresses are a peer's word, and ZeroMQ would also
// connect to files and inside of this process; of a port it reads the low 16 bits alone, so that 65537 would be port 1.
std::optional<WorkerAddress> ParseWorkerAddress(std::string_view address);

inline bool IsWorkerAddress(std::string_view address) { return ParseWorkerAddress(address).has_value(); }

}  // namespace tenure::pd
