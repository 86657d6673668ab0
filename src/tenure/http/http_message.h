// What an HTTP handler gets and gives, and what a client gets back. Values.
#pragma once

#include <string>

namespace tenure::http {

struct HttpRequest {
  std::string authorization;  // The header; empty where there is none.
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

}  // namespace tenure::http
