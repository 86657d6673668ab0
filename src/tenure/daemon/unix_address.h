// The address of a Unix socket. Pure.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/base/status.h"

namespace tenure::daemon {

// The longest path that fits, without the closing NUL.
inline constexpr size_t kSocketPathMax = sizeof(sockaddr_un{}.sun_path) - 1;

inline absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  if (path.empty() || path.size() > kSocketPathMax || path.find('\0') != std::string::npos) {
    return InvalidArgument("socket path \"{}\" has {} bytes; give 1 to {}, without a NUL", path, path.size(),
                           kSocketPathMax);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace tenure::daemon
