// The transports by name, as a configuration gives it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

// "auto", "local", "tcp" or "ucx". `host`: where peers on other hosts reach this process (UcxTransportOptions).
// InvalidArgument for another name, otherwise what the transport's own Create says. `clock` outlives the transport.
absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(std::string_view kind, const std::string& host,
                                                           const Clock& clock);

}  // namespace tenure::transfer
