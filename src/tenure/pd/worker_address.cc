#include "tenure/pd/worker_address.h"

#include "tenure/base/parse.h"

namespace tenure::pd {

bool IsWorkerAddress(std::string_view address) {
  constexpr std::string_view kScheme = "tcp://";
  if (address.substr(0, kScheme.size()) != kScheme) return false;
  address.remove_prefix(kScheme.size());
  const size_t colon = address.rfind(':');
  if (colon == 0 || colon == address.npos) return false;
  return ParseCount("port", address.substr(colon + 1), 1, 65'535).ok();
}

}  // namespace tenure::pd
