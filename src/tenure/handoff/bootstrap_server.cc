#include "tenure/handoff/bootstrap_server.h"

#include <openssl/crypto.h>

#include <utility>
#include <vector>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/handoff/bootstrap_json.h"

namespace tenure::handoff {
namespace {

constexpr std::string_view kOk = R"({"status":"ok"})";

http::HttpResponse Refusal(int status, std::string_view detail) {
  return {.status = status, .body = EncodeDetail(detail)};
}

// In a time that tells nothing of the token but its length.
bool MayRegister(const std::optional<std::string>& token, std::string_view authorization) {
  if (!token) return true;
  const std::string wanted = "Bearer " + *token;
  return authorization.size() == wanted.size() &&
         CRYPTO_memcmp(authorization.data(), wanted.data(), wanted.size()) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BootstrapServer>> BootstrapServer::Start(const BootstrapServerOptions& options) {
  if (options.token && options.token->empty()) {
    return InvalidArgument("token of the bootstrap server is empty; give one, or none at all");
  }
  std::unique_ptr<BootstrapServer> server(new BootstrapServer(options));
  using Method = http::HttpRoute::Method;
  std::vector<http::HttpRoute> routes = {
      {Method::kPost, "/register",
       [raw = server.get()](const http::HttpRequest& request) { return raw->Register(request); }},
      {Method::kGet, "/query", [raw = server.get()](const http::HttpRequest&) { return raw->Query(); }},
      {Method::kGet, "/health", [](const http::HttpRequest&) { return http::HttpResponse{.body = std::string(kOk)}; }}};
  if (options.status) {
    routes.push_back({Method::kGet, "/status", [status = options.status](const http::HttpRequest&) {
                        return http::HttpResponse{.body = status()};
                      }});
  }
  TENURE_ASSIGN_OR_RETURN(server->http_, http::HttpServer::Start("the bootstrap server",
                                                                 {.address = options.address,
                                                                  .threads = options.threads,
                                                                  .body_bytes_max = kRegistrationBytesMax,
                                                                  .timeout = options.timeout},
                                                                 routes));
  return server;
}

http::HttpResponse BootstrapServer::Register(const http::HttpRequest& request) {
  if (!MayRegister(token_, request.authorization)) {
    LogWarning("bootstrap: a registration without the right token was refused");
    return Refusal(401, "the token is missing or wrong; send Authorization: Bearer TOKEN with the server's token");
  }
  const auto worker = DecodeRegistration(request.body);
  if (!worker.ok()) return Refusal(422, Message(worker.status()));
  absl::Status status;
  {
    MutexLock lock(mutex_);
    status = registry_.Register(*worker);
  }
  if (!status.ok()) {
    LogWarning("bootstrap: {}", Message(status));
    return Refusal(400, Message(status));
  }
  LogInfo("bootstrap: engine {} dp {} tp {} pp {} at {}", worker->engine_id, worker->dp_rank, worker->tp_rank,
          worker->pp_rank, worker->address);
  return {.body = std::string(kOk)};
}

http::HttpResponse BootstrapServer::Query() {
  MutexLock lock(mutex_);
  return {.body = EncodeEngines(registry_.engines())};
}

}  // namespace tenure::handoff
