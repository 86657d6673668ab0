// Any bytes as an answer, in pieces that the first byte chooses: no crash, no memory beyond the maxima, an error of one
// bounded line, and the same answer however the bytes are cut. The texts behind it as addresses to ask.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/http/http_address.h"
#include "tenure/http/response_reader.h"

namespace {

constexpr size_t kBodyMax = 300;

void CheckError(const absl::Status& status) {
  const std::string_view text = tenure::Message(status);
  TENURE_CHECK(text.size() < 800 && tenure::IsUtf8(text) && text.find('\n') == text.npos);
}

// The status and body, or what went wrong.
std::string Read(std::string_view bytes, size_t piece) {
  tenure::http::ResponseReader reader(kBodyMax);
  bool whole = false;
  for (size_t at = 0; at < bytes.size() && !whole; at += piece) {
    const auto fed = reader.Feed(bytes.substr(at, piece));
    if (!fed.ok()) {
      CheckError(fed.status());
      return "error";
    }
    whole = *fed;
  }
  if (!whole && !reader.FeedEnd()) return "cut";
  const tenure::http::HttpResponse response = reader.Take();
  TENURE_CHECK(response.body.size() <= kBodyMax && response.status >= 200 && response.status <= 999);
  return std::to_string(response.status) + response.content_type + "\n" + response.body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  TENURE_CHECK(Read(bytes, 1 + data[0] % 16) == Read(bytes, std::max<size_t>(bytes.size(), 1)));
  for (const auto& address :
       {tenure::http::ParseHttpUrl("url", bytes), tenure::http::ParseHttpAddress("--at", bytes)}) {
    if (!address.ok()) CheckError(address.status());
    TENURE_CHECK(!address.ok() || (address->port >= 0 && address->port <= 65'535 && !address->host.empty()));
  }
  return 0;
}
