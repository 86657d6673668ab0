// Any bytes as a step's orders: no crash, an error of one bounded line, and what was understood survives being encoded
// and decoded again.
#include <cstdint>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/step_orders.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto decoded = tenure::pd::DecodeStepOrders({reinterpret_cast<const char*>(data), size});
  if (!decoded.ok()) {
    const std::string_view text = tenure::Message(decoded.status());
    TENURE_CHECK(absl::IsInvalidArgument(decoded.status()) && text.size() < 300 && text.find('\n') == text.npos);
    return 0;
  }
  const auto encoded = tenure::pd::EncodeStepOrders(*decoded);
  TENURE_CHECK(encoded.ok());
  const auto again = tenure::pd::DecodeStepOrders(*encoded);
  TENURE_CHECK(again.ok() && *again == *decoded);
  return 0;
}
