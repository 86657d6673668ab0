#include "tenure/daemon/http_endpoint.h"

#include <utility>

#include "tenure/daemon/exposition.h"

namespace tenure::daemon {

absl::StatusOr<std::unique_ptr<http::HttpServer>> StartHttpEndpoint(std::string_view what,
                                                                    const http::HttpAddress& address, HttpPages pages) {
  const auto metrics = [read = std::move(pages.metrics)](const http::HttpRequest&) {
    return http::HttpResponse{.content_type = kExpositionType, .body = read()};
  };
  const auto health = [healthy = std::move(pages.healthy)](const http::HttpRequest&) {
    const bool good = healthy();
    return http::HttpResponse{
        .status = good ? 200 : 503, .content_type = "text/plain", .body = good ? "ok\n" : "draining\n"};
  };
  return http::HttpServer::Start(
      what, {.address = address},
      {{http::HttpRoute::Method::kGet, "/metrics", metrics}, {http::HttpRoute::Method::kGet, "/healthz", health}});
}

}  // namespace tenure::daemon
