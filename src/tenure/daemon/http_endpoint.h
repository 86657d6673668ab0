// The daemon's HTTP side: GET /metrics and GET /healthz on one address, served from threads of its own. Nothing else is
// answered.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/http/http_server.h"

namespace tenure::daemon {

struct HttpPages {
  std::function<std::string()> metrics;  // Any thread.
  std::function<bool()> healthy;         // Any thread.
};

// Listens when it returns; InvalidArgument names `what` and the address when that is not possible.
absl::StatusOr<std::unique_ptr<http::HttpServer>> StartHttpEndpoint(std::string_view what,
                                                                    const http::HttpAddress& address, HttpPages pages);

}  // namespace tenure::daemon
