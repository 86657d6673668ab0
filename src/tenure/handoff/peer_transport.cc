#include "tenure/handoff/peer_transport.h"

#include <string>

#include "tenure/base/status.h"
#include "tenure/http/http_address.h"

namespace tenure::handoff {

absl::Status WriteTransport(const pd::TransportAddress& address, pd::Pull& pull) {
  if (address.kind != kMooncakeKind) {
    pull.transport = address;
    return absl::OkStatus();
  }
  TENURE_ASSIGN_OR_RETURN(const http::HttpAddress place,
                          http::ParseHttpAddress("the address of Mooncake's engine", address.address));
  pull.remote_hostname = place.host;
  pull.remote_port = place.port;
  pull.transport = {};
  return absl::OkStatus();
}

pd::TransportAddress ReadTransport(const pd::Pull& pull) {
  if (!pull.transport.kind.empty()) return pull.transport;
  const std::string& host = pull.remote_hostname;
  // Some peers bracket it themselves.
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return {.kind = kMooncakeKind,
          .address = fmt::format("{}:{}", bare_ipv6 ? "[" + host + "]" : host, pull.remote_port),
          .memory = {}};
}

}  // namespace tenure::handoff
