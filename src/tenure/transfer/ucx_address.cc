#include "tenure/transfer/ucx_address.h"

#include <fmt/format.h>

#include "tenure/base/status.h"
#include "tenure/transfer/address_frame.h"
#include "tenure/transfer/ucx_frame.h"

namespace tenure::transfer {

std::string EncodeUcxAddress(const UcxAddress& address) {
  return FrameUcxBytes(fmt::format("{} {} {} {} {}", address.port, address.receiver, static_cast<int>(address.rdma),
                                   static_cast<int>(address.device_memory), address.host));
}

absl::StatusOr<UcxAddress> DecodeUcxAddress(std::string_view bytes) {
  TENURE_ASSIGN_OR_RETURN(const std::string text, UnframeUcxBytes("address", bytes));
  std::string_view rest = text;
  UcxAddress address;
  int rdma = 0;
  int device_memory = 0;
  if (!TakeNumber(rest, address.port) || !TakeNumber(rest, address.receiver) || !TakeNumber(rest, rdma) ||
      !TakeNumber(rest, device_memory) || rest.empty()) {
    return InvalidArgument("the peer's ucx address ({} bytes) is incomplete; let both sides run one version of Tenure",
                           text.size());
  }
  address.rdma = rdma != 0;
  address.device_memory = device_memory != 0;
  address.host = rest;
  return address;
}

}  // namespace tenure::transfer
