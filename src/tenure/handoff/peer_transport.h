// Which transport a pull is served by. Pure functions.
//
// Tenure's transports travel in the pull's own field. Mooncake's engine, for stock peers, travels where stock has it:
// host and port, with no transport named (pd_protocol spec §3).
#pragma once

#include "absl/status/status.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/transport_address.h"

namespace tenure::handoff {

inline constexpr char kMooncakeKind[] = "mooncake";  // Its address is HOST:PORT, an IPv6 host in brackets.

// D: what its pulls say. InvalidArgument for a Mooncake address that is no HOST:PORT.
absl::Status WriteTransport(const pd::TransportAddress& address, pd::Pull& pull);
// P: whom to write to.
pd::TransportAddress ReadTransport(const pd::Pull& pull);

}  // namespace tenure::handoff
