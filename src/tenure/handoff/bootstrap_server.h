// Tells decode engines where the workers of prefill engines listen (pd_protocol spec §2): BootstrapRegistry over HTTP.
//
//   POST /register  200 {"status":"ok"}; 422 for a body that is no registration, 400 for one that the registry refuses,
//                   401 without the token where one is set, each with {"detail": why}
//   GET /query      200, the engines by dp rank; {} while there are none
//   GET /health     200 {"status":"ok"}
//   GET /status     200, what `status` gives; 404 without it
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/mutex.h"
#include "tenure/http/http_server.h"
#include "tenure/pd/bootstrap_registry.h"

namespace tenure::handoff {

struct BootstrapServerOptions {
  http::HttpAddress address = {.host = "127.0.0.1", .port = 8998};  // Port 0: any free one.
  // Who registers must say "Authorization: Bearer TOKEN". Queries need none: stock decoders and proxies send none.
  std::optional<std::string> token = std::nullopt;
  size_t threads = 16;                            // As many clients that send nothing hold others up, for `timeout`.
  absl::Duration timeout = absl::Seconds(5);      // For a peer to send its whole request, and again to take the answer.
  std::function<std::string()> status = nullptr;  // JSON for GET /status; any thread.
};

class BootstrapServer {
 public:
  // Listens when it returns; InvalidArgument with the address when that is not possible, or for an empty token.
  static absl::StatusOr<std::unique_ptr<BootstrapServer>> Start(const BootstrapServerOptions& options);

  int port() const { return http_->port(); }

 private:
  explicit BootstrapServer(const BootstrapServerOptions& options) : token_(options.token) {}
  http::HttpResponse Register(const http::HttpRequest& request);
  http::HttpResponse Query();

  const std::optional<std::string> token_;
  Mutex mutex_;
  pd::BootstrapRegistry registry_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<http::HttpServer> http_;  // The last member: its threads use the others.
};

}  // namespace tenure::handoff
