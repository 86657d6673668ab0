#include "tenure/daemon/http_endpoint.h"

#include <httplib.h>

#include <thread>
#include <utility>

#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/daemon/exposition.h"

namespace tenure::daemon {
namespace {

constexpr size_t kThreads = 2;
constexpr size_t kBodyBytesMax = 1024;  // A GET has none.
constexpr time_t kTimeoutSeconds = 5;
constexpr int64_t kPortMax = 65'535;

}  // namespace

absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view what, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.empty() || host.find_first_of(":[]") != std::string_view::npos) {
    return InvalidArgument("{} \"{}\": give ADDRESS:PORT, with an IPv6 address in brackets", what, text);
  }
  TENURE_ASSIGN_OR_RETURN(const int64_t number,
                          ParseCount(fmt::format("{} \"{}\": the port", what, text), port, 0, kPortMax));
  return HttpAddress{.host = std::string(host), .port = static_cast<int>(number)};
}

struct HttpEndpoint::Server {
  httplib::Server http;
  int port = 0;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(std::string_view what, const HttpAddress& address,
                                                                  Pages pages) {
  auto server = std::make_unique<Server>();
  httplib::Server& http = server->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  http.set_payload_max_length(kBodyBytesMax);
  http.set_read_timeout(kTimeoutSeconds);
  http.set_write_timeout(kTimeoutSeconds);
  http.set_keep_alive_max_count(1);  // A reader that stays must not hold one of few threads.
  http.Get("/metrics", [metrics = std::move(pages.metrics)](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics(), kExpositionType);
  });
  http.Get("/healthz", [healthy = std::move(pages.healthy)](const httplib::Request&, httplib::Response& response) {
    const bool good = healthy();
    response.status = good ? 200 : 503;
    response.set_content(good ? "ok\n" : "draining\n", "text/plain");
  });
  // Without SO_REUSEPORT, which the library sets: two daemons on one port would share the requests.
  http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const bool bound = address.port == 0 ? (server->port = http.bind_to_any_port(address.host)) > 0
                                       : http.bind_to_port(address.host, server->port = address.port);
  if (!bound) {
    return InvalidArgument("{} {}:{}: this address cannot be listened on; give one of this machine and a free port",
                           what, address.host, address.port);
  }
  server->thread = std::thread([&http] { http.listen_after_bind(); });
  // A stop before that would be lost.
  while (!http.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(server)));
}

HttpEndpoint::HttpEndpoint(std::unique_ptr<Server> server) : server_(std::move(server)) {}

HttpEndpoint::~HttpEndpoint() {
  server_->http.stop();
  server_->thread.join();
}

int HttpEndpoint::port() const { return server_->port; }

}  // namespace tenure::daemon
