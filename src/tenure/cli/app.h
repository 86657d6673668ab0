// The `tenure` program: parses a command line, wires the parts, prints (docs/reference/cli.md).
#pragma once

#include <span>
#include <string>

#include "tenure/cli/io.h"

namespace tenure::cli {

// `arguments` without the program's name. Returns an exit code (io.h). Every error is one line on `io.err`.
int Run(std::span<const std::string> arguments, const Io& io);

}  // namespace tenure::cli
