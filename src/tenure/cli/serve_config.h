// The configuration file of `tenure serve`: TOML, one key per option under the option's name with underscores.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tenure/cli/serve_command.h"

namespace tenure::cli {

// Fills what `arguments` does not have from the file. InvalidArgument names file, line, key, what is wrong and the
// remedy.
absl::StatusOr<ServeArguments> WithConfigFile(const ServeArguments& arguments);

}  // namespace tenure::cli
