// Any bytes as a registration and as an answer to a query: an error of one bounded line, or values that survive being
// encoded and decoded again.
#include <cstdint>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/handoff/bootstrap_json.h"

namespace {

void CheckRefusal(const absl::Status& status) {
  const std::string_view text = tenure::Message(status);
  TENURE_CHECK(absl::IsInvalidArgument(status) && text.size() < 300 && text.find('\n') == text.npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto worker = tenure::handoff::DecodeRegistration(text); worker.ok()) {
    const std::string encoded = tenure::handoff::EncodeRegistration(*worker);
    const auto again = tenure::handoff::DecodeRegistration(encoded);
    TENURE_CHECK(again.ok() && tenure::handoff::EncodeRegistration(*again) == encoded);
    // Whatever the registry makes of it.
    tenure::pd::BootstrapRegistry registry;
    if (registry.Register(*worker).ok()) TENURE_CHECK(registry.engines().size() == 1);
  } else {
    CheckRefusal(worker.status());
  }
  if (const auto engines = tenure::handoff::DecodeEngines(text); engines.ok()) {
    const std::string encoded = tenure::handoff::EncodeEngines(*engines);
    const auto again = tenure::handoff::DecodeEngines(encoded);
    TENURE_CHECK(again.ok() && tenure::handoff::EncodeEngines(*again) == encoded);
  } else {
    CheckRefusal(engines.status());
  }
  const auto detail = tenure::handoff::DecodeDetail(text);
  TENURE_CHECK(detail.size() <= 503 && tenure::IsUtf8(detail) && detail.find('\n') == detail.npos);
  return 0;
}
