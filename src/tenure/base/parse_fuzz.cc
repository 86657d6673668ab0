// Any text is a value within the documented range or an error of one bounded line.
#include <cstddef>
#include <cstdint>

#include "tenure/base/check.h"
#include "tenure/base/parse.h"
#include "tenure/base/status.h"

namespace {

void CheckMessage(const absl::Status& status) {
  const std::string_view message = tenure::Message(status);
  TENURE_CHECK(message.size() < 300 && message.find('\n') == std::string_view::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto count = tenure::ParseCount("count", text, 1, 1000); count.ok()) {
    TENURE_CHECK(*count >= 1 && *count <= 1000);
  } else {
    CheckMessage(count.status());
  }
  if (const auto bytes = tenure::ParseSize("size", text); bytes.ok()) {
    TENURE_CHECK(bytes->value() >= 0);
  } else {
    CheckMessage(bytes.status());
  }
  if (const auto duration = tenure::ParseDuration("duration", text); duration.ok()) {
    TENURE_CHECK(*duration >= absl::ZeroDuration() && *duration <= absl::Hours(24 * 3650));
  } else {
    CheckMessage(duration.status());
  }
  return 0;
}
