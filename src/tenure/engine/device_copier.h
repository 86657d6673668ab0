// The copier for where an engine keeps its KV, by the name its framework gives the device.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/engine/copier.h"

namespace tenure::engine {

// "cpu" (any ordinal): host memory. "cuda": device `ordinal` of this process, through the driver that is found at run
// time. InvalidArgument names another type, Unavailable a driver or device that is not there; both with the remedy.
absl::StatusOr<std::unique_ptr<Copier>> MakeDeviceCopier(std::string_view type, int ordinal);

}  // namespace tenure::engine
