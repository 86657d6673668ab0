#include "tenure/handoff/curve_keys.h"

#include <zmq.h>

#include <array>

#include "tenure/base/status.h"

namespace tenure::handoff {
namespace {

constexpr size_t kTextBytes = 40;
constexpr size_t kKeyBytes = 32;

absl::Status CheckCurve() {
  if (zmq_has("curve") == 1) return absl::OkStatus();
  return Unavailable("this ZeroMQ has no CURVE; install one built with libsodium, or use no keys");
}

}  // namespace

absl::StatusOr<CurveKeys> MakeCurveKeys() {
  TENURE_RETURN_IF_ERROR(CheckCurve());
  std::array<char, kTextBytes + 1> public_key{};
  std::array<char, kTextBytes + 1> secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return Unavailable("no CURVE keys: {}", zmq_strerror(zmq_errno()));
  }
  return CurveKeys{.public_key = public_key.data(), .secret_key = secret_key.data()};
}

absl::Status CheckCurveKey(std::string_view what, const std::string& key) {
  TENURE_RETURN_IF_ERROR(CheckCurve());
  std::array<uint8_t, kKeyBytes> bytes{};
  // The decoder reads up to the text's end and writes by its length.
  if (key.size() == kTextBytes && key.find('\0') == key.npos && zmq_z85_decode(bytes.data(), key.c_str()) != nullptr) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} is no CURVE key; give {} characters of Z85", what, kTextBytes);
}

}  // namespace tenure::handoff
