// The daemon's HTTP side: GET /metrics and GET /healthz on one address, served from threads of its own. Nothing else is
// answered.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::daemon {

struct HttpAddress {
  std::string host;
  int port = 0;  // 0: any free one.
};

// "127.0.0.1:9090", "[::1]:9090" or "9090", which is a port of the loopback address. The error names `what`.
absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view what, std::string_view text);

class HttpEndpoint {
 public:
  struct Pages {
    std::function<std::string()> metrics;  // Any thread.
    std::function<bool()> healthy;         // Any thread.
  };
  // Listens when it returns; InvalidArgument names `what` and the address when that is not possible.
  static absl::StatusOr<std::unique_ptr<HttpEndpoint>> Start(std::string_view what, const HttpAddress& address,
                                                             Pages pages);
  ~HttpEndpoint();

  int port() const;

 private:
  struct Server;
  explicit HttpEndpoint(std::unique_ptr<Server> server);

  std::unique_ptr<Server> server_;
};

}  // namespace tenure::daemon
