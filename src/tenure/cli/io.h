// What a command may touch of the world: its three streams and the flag that Ctrl-C sets.
#pragma once

#include <atomic>
#include <iosfwd>

namespace tenure::cli {

struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;  // A progress bar may be drawn.
  const std::atomic<bool>& interrupted;
};

// Exit codes of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitData = 1;   // What was read or written is not as it should be.
inline constexpr int kExitUsage = 2;  // The command line is not.
inline constexpr int kExitInterrupted = 130;

}  // namespace tenure::cli
