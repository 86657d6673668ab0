// Addresses of sockets from the texts that people and peers give.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tenure::transfer {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// `host` is numeric. InvalidArgument for anything else.
absl::StatusOr<SocketAddress> NumericAddress(const std::string& host, uint16_t port);
// Of this machine, to listen at: a name is looked up, which may wait. InvalidArgument for what is none or is all
// interfaces at once, which no peer could be told.
absl::StatusOr<SocketAddress> ListenAddress(const std::string& host);

// Numeric.
std::string HostOf(const SocketAddress& address);
uint16_t PortOf(const SocketAddress& address);

}  // namespace tenure::transfer
