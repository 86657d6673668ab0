#include "tenure/cli/serve_command.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <ostream>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/cli/serve_options.h"
#include "tenure/daemon/daemon_server.h"
#include "tenure/daemon/exposition.h"
#include "tenure/daemon/http_endpoint.h"
#include "tenure/daemon/pool_host.h"

namespace tenure::cli {
namespace {

std::atomic<daemon::DaemonServer*> serving = nullptr;
static_assert(std::atomic<daemon::DaemonServer*>::is_always_lock_free, "read in a signal handler");

void OnEnd(int) {
  if (daemon::DaemonServer* server = serving.load()) server->Stop();
}

// SIGTERM and SIGINT stop the server as long as this lives.
class StopOnSignal {
 public:
  explicit StopOnSignal(daemon::DaemonServer& server) {
    serving.store(&server);
    struct sigaction end {};
    end.sa_handler = OnEnd;
    end.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &end, &old_term_);
    sigaction(SIGINT, &end, &old_int_);
  }
  ~StopOnSignal() {
    sigaction(SIGTERM, &old_term_, nullptr);
    sigaction(SIGINT, &old_int_, nullptr);
    serving.store(nullptr);
  }
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  struct sigaction old_term_ {};
  struct sigaction old_int_ {};
};

// A client takes two descriptors, and the usual soft limit is 1,024.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // If refused, the soft limit stays and the daemon says when it is reached.
}

absl::Status Serve(const ServeOptions& options) {
  TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<daemon::PoolHost> host,
                          daemon::PoolHost::Create({.socket = options.socket,
                                                    .memory = options.memory,
                                                    .slab_bytes = options.slab_bytes,
                                                    .mode = options.mode,
                                                    .group = options.group,
                                                    .huge_pages = options.huge_pages,
                                                    .held_bytes_max = options.held_bytes_max,
                                                    .clients_max = options.clients_max,
                                                    .drain_timeout = options.drain_timeout}));
  daemon::DaemonServer& server = host->server();
  std::unique_ptr<http::HttpServer> pages;  // Ends before the server that it shows.
  if (options.metrics.has_value()) {
    TENURE_ASSIGN_OR_RETURN(
        pages,
        daemon::StartHttpEndpoint("--metrics", *options.metrics,
                                  {.metrics = [&server] { return daemon::Expose(server.PoolStats(), server.Stats()); },
                                   .healthy = [&server] { return server.Stats().draining == 0; }}));
  }
  const StopOnSignal stop(server);
  TENURE_RETURN_IF_ERROR(server.Listen());
  LogInfo("serve: {} MiB on {}{}", options.memory.value() >> 20, options.socket,
          pages != nullptr ? fmt::format(", metrics on port {}", pages->port()) : "");
  return server.Run();
}

}  // namespace

CLI::App* AddServe(CLI::App& app, ServeArguments& arguments) {
  CLI::App* serve = app.add_subcommand("serve", "Own the pool of this machine and share it with its engines");
  serve->add_option("--socket", arguments.socket, "Unix socket to serve, for this user alone");
  serve->add_option("--memory", arguments.memory, "Size of the pool, such as 8GiB; taken at start");
  serve->add_option("--mode", arguments.mode, "closed (default) or independent");
  serve->add_option("--group", arguments.group, "Let the members of this group connect too");
  serve->add_flag("--huge-pages", arguments.huge_pages, "Take the memory from the reserve of huge pages");
  serve->add_option("--metrics", arguments.metrics,
                    "Serve /metrics and /healthz at ADDRESS:PORT; a PORT alone is on loopback");
  serve->add_option("--drain-timeout", arguments.drain_timeout,
                    "How long the end waits for copies that run (default 10s)");
  serve->add_option("--clients-max", arguments.clients_max, "Connections at one time (default 1024)");
  serve->add_option("--held-bytes-max", arguments.held_bytes_max,
                    "Reserved and pinned bytes of one client (default: half of the memory)");
  serve->add_option("--config", arguments.config,
                    "TOML file with these options, as socket = \"...\"; the command line wins");
  return serve;
}

int RunServe(const ServeArguments& arguments, const Io& io) {
  const absl::StatusOr<ServeOptions> options = ReadServeOptions(arguments, MemoryAvailable());
  if (!options.ok()) {
    io.err << fmt::format("tenure: {}\n", Message(options.status()));
    return kExitUsage;
  }
  RaiseFileLimit();
  if (const absl::Status status = Serve(*options); !status.ok()) {
    io.err << fmt::format("tenure: {}\n", Message(status));
    return absl::IsInvalidArgument(status) ? kExitUsage : kExitData;
  }
  return kExitDone;
}

}  // namespace tenure::cli
