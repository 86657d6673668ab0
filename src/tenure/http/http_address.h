// Where an HTTP server listens or is asked, from the texts that people and peers give. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::http {

struct HttpAddress {
  std::string host;  // An IPv6 address without its brackets.
  int port = 0;      // 0, to listen: any free one.
};

// "127.0.0.1:9090", "[::1]:9090" or "9090", which is a port of the loopback address. The error names `what`.
absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view what, std::string_view text);

// "http://HOST:PORT", with or without a slash at its end: a server to ask. The error names `what`.
absl::StatusOr<HttpAddress> ParseHttpUrl(std::string_view what, std::string_view text);

}  // namespace tenure::http
