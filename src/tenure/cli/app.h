// The `tenure` program: parses a command line, wires the parts, prints. Exit codes: 0 done, 2 usage, 1 data, 130 interrupted.
#pragma once

#include <span>
#include <string>

namespace tenure::cli {

int Run(std::span<const std::string> arguments);

}  // namespace tenure::cli
