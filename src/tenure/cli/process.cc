#include "tenure/cli/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "tenure/cli/app.h"
#include "tenure/cli/fd_stream.h"

namespace tenure::cli {
namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void OnInterrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

void InstallSignals() {
  struct sigaction interrupt {};
  interrupt.sa_handler = OnInterrupt;
  interrupt.sa_flags = static_cast<int>(SA_RESETHAND);  // No SA_RESTART: a read from a pipe ends.
  sigaction(SIGINT, &interrupt, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

}  // namespace

int RunProcess(std::span<const std::string> arguments) {
  InstallSignals();
  FdStreambuf out_buffer(STDOUT_FILENO);
  FdStreambuf err_buffer(STDERR_FILENO);
  std::ostream out(&out_buffer);
  std::ostream err(&err_buffer);
  err << std::unitbuf;
  const Io io{std::cin, out, err, isatty(STDERR_FILENO) == 1, interrupted};
  const int code = Run(arguments, io);
  out.flush();
  if (out_buffer.error() == 0) return code;
  if (out_buffer.error() != EPIPE) {
    err << fmt::format("tenure: standard output: {}; what was printed is not whole\n",
                       std::strerror(out_buffer.error()));
  }
  return code == kExitDone ? kExitData : code;
}

}  // namespace tenure::cli
