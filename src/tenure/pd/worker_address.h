// What a worker's side channel is known by: "tcp://HOST:PORT", an IPv6 address in brackets.
#pragma once

#include <string_view>

namespace tenure::pd {

// Whether a text is one, with a port from 1 to 65535. Addresses are a peer's word, and ZeroMQ would also connect to
// files and inside of this process; of a port it reads the low 16 bits alone, so that 65537 would be port 1.
bool IsWorkerAddress(std::string_view address);

}  // namespace tenure::pd
