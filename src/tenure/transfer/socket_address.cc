#include "tenure/transfer/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

absl::StatusOr<SocketAddress> LookUp(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0)
    return InvalidArgument("host is \"{}\": {}; name an address of this machine", host, gai_strerror(error));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

bool IsAny(const SocketAddress& address) {
  const std::string host = HostOf(address);
  return host == "0.0.0.0" || host == "::";
}

}  // namespace

absl::StatusOr<SocketAddress> NumericAddress(const std::string& host, uint16_t port) {
  TENURE_ASSIGN_OR_RETURN(SocketAddress address, LookUp(host, AI_NUMERICHOST));
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  }
  return address;
}

absl::StatusOr<SocketAddress> ListenAddress(const std::string& host) {
  TENURE_ASSIGN_OR_RETURN(SocketAddress address, LookUp(host, 0));
  if (IsAny(address)) return InvalidArgument("host is {}, all interfaces; name the address that peers reach", host);
  return address;
}

std::string HostOf(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const void* bytes = address.storage.ss_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  return inet_ntop(address.storage.ss_family, bytes, text.data(), text.size()) == nullptr ? "" : text.data();
}

uint16_t PortOf(const SocketAddress& address) {
  return ntohs(address.storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port
                   : reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
}

}  // namespace tenure::transfer
