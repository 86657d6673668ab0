#include "tenure/transfer/tcp_address.h"

#include <fmt/format.h>

#include "tenure/base/status.h"
#include "tenure/transfer/address_frame.h"

namespace tenure::transfer {
namespace {

constexpr std::string_view kMagic = "TTCP1";

}  // namespace

std::string EncodeTcpAddress(const TcpAddress& address) {
  return FrameBytes(kMagic, fmt::format("{} {} {}", address.port, address.receiver, address.host));
}

absl::StatusOr<TcpAddress> DecodeTcpAddress(std::string_view bytes) {
  TENURE_ASSIGN_OR_RETURN(const std::string text, UnframeBytes(kMagic, "tcp", "address", bytes));
  std::string_view rest = text;
  TcpAddress address;
  if (!TakeNumber(rest, address.port) || !TakeNumber(rest, address.receiver) || rest.empty()) {
    return InvalidArgument("the peer's tcp address ({} bytes) is incomplete; let both sides run one version of Tenure",
                           text.size());
  }
  address.host = rest;
  return address;
}

}  // namespace tenure::transfer
