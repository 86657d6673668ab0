// The options of `tenure serve`, from command line and configuration file, checked. No memory is taken and nothing is
// opened but the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/units.h"
#include "tenure/cli/serve_command.h"
#include "tenure/http/http_address.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::cli {

struct ServeOptions {
  std::string socket;
  Bytes memory;  // Whole slabs.
  Bytes slab_bytes;
  store::PoolMode mode = store::PoolMode::kClosed;
  std::optional<uint32_t> group;
  std::optional<http::HttpAddress> metrics;
  absl::Duration drain_timeout;
  int clients_max = 0;
  Bytes held_bytes_max;  // 0: half of the memory.
  bool huge_pages = false;
};

// Memory that a new pool could have here: what is available on the machine, or what is left to this control group if
// that is less.
Bytes MemoryAvailable();

// The command line wins over the file. InvalidArgument names option (or file, line and key), value and remedy.
absl::StatusOr<ServeOptions> ReadServeOptions(const ServeArguments& arguments, Bytes memory_available);

}  // namespace tenure::cli
