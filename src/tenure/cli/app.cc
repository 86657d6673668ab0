#include "tenure/cli/app.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <vector>

#include "tenure/cli/commands.h"
#include "tenure/cli/explain.h"
#include "tenure/cli/serve_command.h"

namespace tenure::cli {
namespace {

// What the parser filled in. Every option is text: sizes, durations and counts are read by base/parse.h.
struct Arguments {
  ReplayArguments replay;
  WorkloadArguments workload;
  ServeArguments serve;
};

CLI::App* AddReplay(CLI::App& app, ReplayArguments& arguments) {
  CLI::App* replay =
      app.add_subcommand("replay", "Replay request logs on a simulated store and report what it would have hit");
  replay->add_option("TRACE", arguments.traces, "Trace files, JSON lines; each is replayed on a fresh store")
      ->required();
  replay->add_option("--capacity", arguments.capacity, "Size of the store, such as 512GiB, or unlimited")
      ->capture_default_str();
  replay->add_option("--pool", arguments.pool, "closed, independent or mooncake")->capture_default_str();
  replay->add_option("--lease", arguments.lease, "all, selective, or both as all,selective (a column each)")
      ->capture_default_str();
  replay->add_option("--lookup", arguments.lookup, "tail-first or exhaustive")->capture_default_str();
  replay->add_option("--model", arguments.model, "A name of `tenure models` or a JSON file")->capture_default_str();
  replay->add_option("--trace-block", arguments.trace_block, "Tokens of one hash id in the trace")
      ->capture_default_str();
  replay
      ->add_option(
          "--state-every", arguments.state_every,
          "Save windows and states at each multiple of this many tokens too; 0: only at a prompt's last boundary")
      ->capture_default_str();
  replay->add_option("--lease-ttl", arguments.lease_ttl, "How long a lookup's lease lasts")->capture_default_str();
  replay->add_option("--json", arguments.json, "Also write the report to this file");
  return replay;
}

CLI::App* AddAgentic(CLI::App& workload, WorkloadArguments& arguments) {
  CLI::App* agentic =
      workload.add_subcommand("agentic", "Coding agents: shared system prompts, growing prompts, pauses, branches");
  agentic->add_option("--sessions", arguments.sessions, "Sessions alive at one time")->capture_default_str();
  agentic->add_option("--requests", arguments.requests, "Requests in all")->capture_default_str();
  agentic->add_option("--seed", arguments.seed, "The same seed gives the same bytes")->capture_default_str();
  agentic->add_option("--trace-block", arguments.block, "Tokens of one hash id")->capture_default_str();
  agentic->add_option("--system-prompts", arguments.system_prompts, "Different system prompts")->capture_default_str();
  agentic->add_option("--system-tokens", arguments.system_tokens, "Tokens of each")->capture_default_str();
  agentic->add_option("--turns", arguments.turns, "Turns of a session, mean")->capture_default_str();
  agentic->add_option("--context-max", arguments.context_max, "Prompt tokens at which a session ends")
      ->capture_default_str();
  agentic->add_option("--tool-pause", arguments.tool_pause, "Wait for a tool, mean")->capture_default_str();
  agentic->add_option("--person-pause", arguments.person_pause, "Wait for a person, mean")->capture_default_str();
  agentic->add_option("--output", arguments.output, "File to write; standard output if not given");
  return agentic;
}

}  // namespace

int Run(std::span<const std::string> arguments, const Io& io) {
  CLI::App app("Tenure keeps the KV cache that will be read, for as long as it will be read.", "tenure");
  app.set_version_flag("--version", "tenure " TENURE_VERSION);
  app.require_subcommand(0, 1);
  Arguments given;
  const CLI::App* replay = AddReplay(app, given.replay);
  CLI::App* workload = app.add_subcommand("workload", "Write a generated trace");
  workload->require_subcommand(1);
  const CLI::App* agentic = AddAgentic(*workload, given.workload);
  const CLI::App* models = app.add_subcommand("models", "List the built-in models and what their KV weighs");
  const CLI::App* explain =
      app.add_subcommand("explain", "Answer questions about masks, hits and keys: JSON lines in, JSON lines out");
  const CLI::App* serve = AddServe(app, given.serve);
  if (arguments.empty()) {
    io.err << app.help();
    return kExitUsage;
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& help) {
    app.exit(help, io.out, io.err);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    io.err << fmt::format("tenure: {}; see `tenure --help`\n", what);
    return kExitUsage;
  }
  if (replay->parsed()) return RunReplay(given.replay, io);
  if (agentic->parsed()) return RunAgenticWorkload(given.workload, io);
  if (models->parsed()) return RunModels(io);
  if (serve->parsed()) return RunServe(given.serve, io);
  if (explain->parsed()) return RunExplain(io.in, io.out);
  io.err << app.help();
  return kExitUsage;
}

}  // namespace tenure::cli
