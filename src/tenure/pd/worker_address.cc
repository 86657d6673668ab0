#include "tenure/pd/worker_address.h"

#include "tenure/base/parse.h"

namespace tenure::pd {

std::optional<WorkerAddress> ParseWorkerAddress(std::string_view address) {
  constexpr std::string_view kScheme = "tcp://";
  if (address.substr(0, kScheme.size()) != kScheme) return std::nullopt;
  address.remove_prefix(kScheme.size());
  const size_t colon = address.rfind(':');
  if (colon == 0 || colon == address.npos) return std::nullopt;
  const auto port = ParseCount("port", address.substr(colon + 1), 1, 65'535);
  if (!port.ok()) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return WorkerAddress{std::string(host), static_cast<uint16_t>(*port)};
}

}  // namespace tenure::pd
