#include <array>
#include <optional>
#include <ostream>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/cli/commands.h"
#include "tenure/cli/output_file.h"
#include "tenure/cli/progress_bar.h"
#include "tenure/sim/replay.h"
#include "tenure/sim/replay_report.h"
#include "tenure/sim/trace.h"

namespace tenure::cli {
namespace {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};
constexpr std::array<Named<sim::ReplayPool>, 3> kPools = {{{"closed", sim::ReplayPool::kClosed},
                                                           {"independent", sim::ReplayPool::kIndependent},
                                                           {"mooncake", sim::ReplayPool::kMooncake}}};
constexpr std::array<Named<kv::SearchMode>, 2> kLookups = {
    {{"tail-first", kv::SearchMode::kTailFirst}, {"exhaustive", kv::SearchMode::kExhaustive}}};
constexpr std::array<Named<connector::LeaseMode>, 2> kLeases = {
    {{"all", connector::LeaseMode::kAll}, {"selective", connector::LeaseMode::kSelective}}};

template <typename T, size_t n>
absl::StatusOr<T> ParseName(std::string_view option, std::string_view text, const std::array<Named<T>, n>& names) {
  std::string known;
  for (const Named<T>& named : names) {
    if (named.name == text) return named.value;
    known += (known.empty() ? "" : ", ") + std::string(named.name);
  }
  return InvalidArgument("{} \"{}\": give one of {}", option, text, known);
}

absl::StatusOr<std::vector<connector::LeaseMode>> ParseLeases(std::string_view text) {
  std::vector<connector::LeaseMode> modes;
  while (true) {
    const size_t comma = text.find(',');
    TENURE_ASSIGN_OR_RETURN(const connector::LeaseMode mode, ParseName("--lease", text.substr(0, comma), kLeases));
    for (const connector::LeaseMode other : modes) {
      if (other == mode) return InvalidArgument("--lease names {} twice: give each once", sim::ToString(mode));
    }
    modes.push_back(mode);
    if (comma == std::string_view::npos) return modes;
    text.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::optional<Bytes>> ParseCapacity(std::string_view text) {
  if (text == "unlimited") return std::optional<Bytes>();
  TENURE_ASSIGN_OR_RETURN(const Bytes capacity, ParseSize("--capacity", text));
  if (capacity == Bytes(0)) return InvalidArgument("--capacity \"{}\": give more than 0, or unlimited", text);
  return std::optional<Bytes>(capacity);
}

absl::StatusOr<sim::ReplayOptions> ParseOptions(const ReplayArguments& arguments) {
  TENURE_ASSIGN_OR_RETURN(const std::optional<Bytes> capacity, ParseCapacity(arguments.capacity));
  TENURE_ASSIGN_OR_RETURN(const sim::ReplayPool pool, ParseName("--pool", arguments.pool, kPools));
  TENURE_ASSIGN_OR_RETURN(std::vector<connector::LeaseMode> leases, ParseLeases(arguments.lease));
  TENURE_ASSIGN_OR_RETURN(const kv::SearchMode lookup, ParseName("--lookup", arguments.lookup, kLookups));
  TENURE_ASSIGN_OR_RETURN(const int64_t trace_block,
                          ParseCount("--trace-block", arguments.trace_block, 1, sim::kTraceBlockMax.value()));
  TENURE_ASSIGN_OR_RETURN(const int64_t state_every,
                          ParseCount("--state-every", arguments.state_every, 0, sim::kTraceTokensMax.value()));
  TENURE_ASSIGN_OR_RETURN(const absl::Duration lease_ttl, ParseDuration("--lease-ttl", arguments.lease_ttl));
  TENURE_ASSIGN_OR_RETURN(sim::ModelProfile model, sim::LoadModel(arguments.model, Tokens(trace_block)));
  return sim::ReplayOptions{std::move(model),    capacity, pool, std::move(leases), lookup,
                            Tokens(state_every), lease_ttl};
}

// Feeds one trace to a fresh store for each lease mode. A trace that was interrupted gives what it has.
absl::StatusOr<sim::ReplayRun> ReplayTrace(const std::string& path, const sim::ReplayOptions& options, const Io& io) {
  const MonotonicClock clock;
  TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<sim::Replay> replay, sim::Replay::Create(options, clock));
  sim::ReplayRun run{path, &options, {}, false};
  auto source = sim::OpenFile(path, &io.interrupted);
  if (source.ok()) {
    sim::TraceReader reader(path, *std::move(source), options.model.config.hash_block_size());
    ProgressBar progress(io.err, io.err_is_terminal, clock);
    sim::TraceRequest request;
    for (int64_t requests = 0; !io.interrupted.load(std::memory_order_relaxed); ++requests) {
      const absl::StatusOr<bool> more = reader.Next(request);
      if (absl::IsCancelled(more.status())) break;
      if (!more.ok()) return more.status();
      if (!*more) {
        run.report = replay->Report();
        return run;
      }
      TENURE_RETURN_IF_ERROR(replay->Feed(request));
      progress.Update(path, reader.consumed(), reader.bytes().size(), requests);
    }
  } else if (!absl::IsCancelled(source.status())) {
    return source.status();
  }
  run.incomplete = true;
  run.report = replay->Report();
  return run;
}

absl::StatusOr<int> Replay(const ReplayArguments& arguments, const Io& io) {
  TENURE_ASSIGN_OR_RETURN(const sim::ReplayOptions options, ParseOptions(arguments));
  for (const std::string& trace : arguments.traces) TENURE_RETURN_IF_ERROR(sim::CheckReadable(trace));
  std::optional<OutputFile> json;
  if (!arguments.json.empty()) {
    TENURE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(arguments.json));
    json.emplace(std::move(file));
  }
  std::vector<sim::ReplayRun> runs;
  for (const std::string& trace : arguments.traces) {
    TENURE_ASSIGN_OR_RETURN(sim::ReplayRun run, ReplayTrace(trace, options, io));
    io.out << (runs.empty() ? "" : "\n") << sim::RenderTable(run) << std::flush;
    runs.push_back(std::move(run));
    if (runs.back().incomplete) break;
  }
  if (json) {
    TENURE_RETURN_IF_ERROR(json->Append(sim::RenderJson(runs)));
    TENURE_RETURN_IF_ERROR(json->Commit());
  }
  if (!runs.back().incomplete) return kExitDone;
  io.err << "tenure replay: interrupted; the figures are those of the requests before\n";
  return kExitInterrupted;
}

}  // namespace

int RunReplay(const ReplayArguments& arguments, const Io& io) {
  const absl::StatusOr<int> code = Replay(arguments, io);
  if (code.ok()) return *code;
  io.err << fmt::format("tenure replay: {}\n", Message(code.status()));
  return absl::IsInvalidArgument(code.status()) ? kExitUsage : kExitData;
}

}  // namespace tenure::cli
