#include "tenure/http/http_client.h"

#include <httplib.h>

#include <utility>

#include "tenure/base/status.h"

namespace tenure::http {

struct HttpClient::Impl {
  Impl(const HttpAddress& address, const HttpClientOptions& given)
      : http(address.host, address.port), options(given), place(fmt::format("{}:{}", address.host, address.port)) {
    http.set_connection_timeout(absl::ToChronoMicroseconds(options.timeout));
    http.set_read_timeout(absl::ToChronoMicroseconds(options.timeout));
    http.set_write_timeout(absl::ToChronoMicroseconds(options.timeout));
    if (!options.authorization.empty()) http.set_default_headers({{"Authorization", options.authorization}});
  }

  absl::StatusOr<HttpResponse> Send(std::string_view method, std::string_view path, std::string_view body);

  httplib::Client http;
  const HttpClientOptions options;
  const std::string place;
};

absl::StatusOr<HttpResponse> HttpClient::Impl::Send(std::string_view method, std::string_view path,
                                                    std::string_view body) {
  HttpResponse answer;
  bool too_long = false;
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = body;
  if (!body.empty()) request.set_header("Content-Type", "application/json");
  // The library would gather an answer of any length.
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    too_long = size > options.body_bytes_max - answer.body.size();
    if (!too_long) answer.body.append(data, size);
    return !too_long;
  };
  const httplib::Result result = http.send(request);
  if (too_long) {
    return ResourceExhausted("the answer of {} to {} {} is longer than {} bytes; ask the right server", place, method,
                             path, options.body_bytes_max);
  }
  if (!result) {
    return Unavailable("no answer of {} to {} {} ({}); check that the server runs and is reachable", place, method,
                       path, httplib::to_string(result.error()));
  }
  answer.status = result->status;
  answer.content_type = result->get_header_value("Content-Type");
  return answer;
}

HttpClient::HttpClient(const HttpAddress& address, const HttpClientOptions& options)
    : impl_(std::make_unique<Impl>(address, options)) {}

HttpClient::~HttpClient() = default;

absl::StatusOr<HttpResponse> HttpClient::Get(std::string_view path) { return impl_->Send("GET", path, {}); }

absl::StatusOr<HttpResponse> HttpClient::Post(std::string_view path, std::string_view json) {
  return impl_->Send("POST", path, json);
}

void HttpClient::Cancel() { impl_->http.stop(); }

}  // namespace tenure::http
