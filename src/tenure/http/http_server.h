// A few fixed paths of one address, served over HTTP/1.1 from threads of its own, one request a connection. Any other
// path is answered 404, a body that is too long 413. A peer that is slow or says too much loses its connection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/http/http_address.h"
#include "tenure/http/http_message.h"

namespace tenure::http {

struct HttpRoute {
  enum class Method { kGet, kPost };
  Method method;
  std::string path;
  std::function<HttpResponse(const HttpRequest&)> handler;  // Any thread, several at once; must not block for long.
};

struct HttpServerOptions {
  HttpAddress address = {};
  size_t threads = 2;
  size_t connections_waiting_max = 64;        // For a thread; further ones wait in the kernel's backlog.
  size_t body_bytes_max = 1024;               // Of a request.
  absl::Duration timeout = absl::Seconds(5);  // For a peer to send its whole request, and again to take the answer.
};

class HttpServer {
 public:
  // Listens when it returns, on this address alone; InvalidArgument names `what` and the address when that is not
  // possible.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(std::string_view what, const HttpServerOptions& options,
                                                           const std::vector<HttpRoute>& routes);
  // Waits for requests under way.
  ~HttpServer();

  int port() const;

  // Of a request's line and header fields, beside twice its body's maximum.
  static constexpr size_t kHeadBytesMax = 64 << 10;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::http
