#include "tenure/cli/app.h"

namespace tenure::cli {

int Run(std::span<const std::string> arguments) { return arguments.empty() ? 2 : 0; }

}  // namespace tenure::cli
