// The shell around Run: standard streams, Ctrl-C, closed pipes and full disks.
#pragma once

#include <span>
#include <string>

namespace tenure::cli {

// Runs the program on descriptors 0, 1 and 2 and returns its exit code. Ctrl-C sets a flag the first time and kills the
// second time. A closed pipe ends the program quietly with code 1; any other failure to write standard output is one
// line and code 1.
int RunProcess(std::span<const std::string> arguments);

}  // namespace tenure::cli
