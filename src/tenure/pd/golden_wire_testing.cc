#include "tenure/pd/golden_wire_testing.h"

#include "tenure/base/check.h"

namespace tenure::pd {
namespace {

struct Golden {
  std::string_view name;
  std::string_view hex;
};

constexpr Golden kGolden[] = {
#include "tenure/pd/golden_wire.inc"
};

int Digit(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(Digit(hex[i]) << 4 | Digit(hex[i + 1])));
  }
  return bytes;
}

}  // namespace

std::string GoldenMessage(std::string_view name) {
  for (const Golden& golden : kGolden) {
    if (golden.name == name) return FromHex(golden.hex);
  }
  const bool golden_message_exists = false;
  TENURE_CHECK(golden_message_exists);
  return {};
}

std::vector<std::string> AllGoldenMessages() {
  std::vector<std::string> messages;
  for (const Golden& golden : kGolden) messages.push_back(FromHex(golden.hex));
  return messages;
}

}  // namespace tenure::pd
