#include "tenure/http/http_address.h"

#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"

namespace tenure::http {
namespace {

constexpr int64_t kPortMax = 65'535;
constexpr size_t kQuotedMax = 200;  // A text may be a peer's.
constexpr std::string_view kScheme = "http://";

}  // namespace

absl::StatusOr<HttpAddress> ParseHttpAddress(std::string_view what, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.empty() || host.find_first_of(":[]") != std::string_view::npos) {
    return InvalidArgument("{} \"{}\": give ADDRESS:PORT, with an IPv6 address in brackets", what,
                           OneLine(text, kQuotedMax));
  }
  TENURE_ASSIGN_OR_RETURN(
      const int64_t number,
      ParseCount(fmt::format("{} \"{}\": the port", what, OneLine(text, kQuotedMax)), port, 0, kPortMax));
  return HttpAddress{.host = std::string(host), .port = static_cast<int>(number)};
}

absl::StatusOr<HttpAddress> ParseHttpUrl(std::string_view what, std::string_view text) {
  std::string_view place = text;
  if (place.substr(0, kScheme.size()) == kScheme) {
    place.remove_prefix(kScheme.size());
    if (!place.empty() && place.back() == '/') place.remove_suffix(1);
    const bool has_port = place.find(':') != std::string_view::npos;
    if (has_port && place.find_first_of("/?#@") == std::string_view::npos) {
      TENURE_ASSIGN_OR_RETURN(HttpAddress address, ParseHttpAddress(what, place));
      if (address.port > 0) return address;
    }
  }
  return InvalidArgument("{} \"{}\": give http://HOST:PORT", what, OneLine(text, kQuotedMax));
}

}  // namespace tenure::http
