// Asks one HTTP server one thing at a time and waits for the answer. One thread at a time, but for Cancel.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/http/http_address.h"
#include "tenure/http/http_message.h"

namespace tenure::http {

struct HttpClientOptions {
  absl::Duration timeout = absl::Seconds(30);  // For the connection, and then for the whole answer.
  size_t body_bytes_max = size_t{16} << 20;    // Of an answer.
  std::string authorization = {};              // The header; empty: none.
};

class HttpClient {
 public:
  HttpClient(const HttpAddress& address, const HttpClientOptions& options);
  ~HttpClient();

  // Whatever status the server answers with; redirections are not followed. Unavailable, with the address, when there
  // was no connection or no whole answer in time; InvalidArgument when the answer is no HTTP; ResourceExhausted when it
  // is too long.
  absl::StatusOr<HttpResponse> Get(std::string_view path);
  absl::StatusOr<HttpResponse> Post(std::string_view path, std::string_view json);
  // Any thread: what is under way ends now, but for the look-up of a name, and what comes later fails, with
  // Unavailable.
  void Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::http
