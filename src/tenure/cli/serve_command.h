// `tenure serve`: the daemon that owns a machine's pool (docs/operating/daemon.md).
#pragma once

#include <string>

#include "tenure/cli/io.h"

namespace CLI {
class App;
}

namespace tenure::cli {

// Texts as given on the command line; empty for not given, then the configuration file decides, then the default.
struct ServeArguments {
  std::string socket;
  std::string memory;
  std::string mode;
  std::string group;
  std::string metrics;
  std::string drain_timeout;
  std::string clients_max;
  std::string held_bytes_max;
  bool huge_pages = false;
  std::string config;
};

// The subcommand with its options.
CLI::App* AddServe(CLI::App& app, ServeArguments& arguments);

// Serves until SIGTERM or SIGINT. Everything is checked before any memory is taken; each error is one line on `io.err`.
int RunServe(const ServeArguments& arguments, const Io& io);

}  // namespace tenure::cli
