#include <optional>
#include <ostream>

#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/cli/commands.h"
#include "tenure/cli/output_file.h"
#include "tenure/sim/workload.h"

namespace tenure::cli {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 16;

absl::StatusOr<sim::AgenticOptions> ParseOptions(const WorkloadArguments& arguments) {
  sim::AgenticOptions options;
  const int64_t tokens_max = sim::kTraceTokensMax.value() / 4;
  TENURE_ASSIGN_OR_RETURN(options.sessions, ParseCount("--sessions", arguments.sessions, 1, sim::kWorkloadSessionsMax));
  TENURE_ASSIGN_OR_RETURN(options.requests, ParseCount("--requests", arguments.requests, 1, sim::kWorkloadRequestsMax));
  TENURE_ASSIGN_OR_RETURN(const int64_t seed, ParseCount("--seed", arguments.seed, 0, INT64_MAX));
  options.seed = static_cast<uint64_t>(seed);
  TENURE_ASSIGN_OR_RETURN(const int64_t block,
                          ParseCount("--trace-block", arguments.block, 1, sim::kTraceBlockMax.value()));
  options.block = Tokens(block);
  TENURE_ASSIGN_OR_RETURN(options.system_prompts,
                          ParseCount("--system-prompts", arguments.system_prompts, 1, 1'000'000));
  TENURE_ASSIGN_OR_RETURN(const int64_t system_tokens,
                          ParseCount("--system-tokens", arguments.system_tokens, 1, tokens_max));
  options.system_tokens = Tokens(system_tokens);
  TENURE_ASSIGN_OR_RETURN(options.turns_mean, ParseCount("--turns", arguments.turns, 1, 1'000'000));
  TENURE_ASSIGN_OR_RETURN(const int64_t context_max, ParseCount("--context-max", arguments.context_max, 1, tokens_max));
  options.context_max = Tokens(context_max);
  TENURE_ASSIGN_OR_RETURN(options.tool_pause_mean, ParseDuration("--tool-pause", arguments.tool_pause));
  TENURE_ASSIGN_OR_RETURN(options.person_pause_mean, ParseDuration("--person-pause", arguments.person_pause));
  return options;
}

// To standard output as it is made; a file appears as a whole.
absl::StatusOr<int> Write(const WorkloadArguments& arguments, const Io& io) {
  TENURE_ASSIGN_OR_RETURN(const sim::AgenticOptions options, ParseOptions(arguments));
  TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<sim::AgenticWorkload> workload, sim::AgenticWorkload::Create(options));
  std::optional<OutputFile> file;
  if (!arguments.output.empty()) {
    TENURE_ASSIGN_OR_RETURN(OutputFile opened, OutputFile::Open(arguments.output));
    file.emplace(std::move(opened));
  }
  std::string text;
  sim::TraceRequest request;
  bool more = true;
  while (more) {
    if (io.interrupted.load(std::memory_order_relaxed)) return kExitInterrupted;
    TENURE_ASSIGN_OR_RETURN(more, workload->Next(request));
    if (more) sim::AppendTraceLine(request, text);
    if (more && text.size() < kFlushBytes) continue;
    if (file) {
      TENURE_RETURN_IF_ERROR(file->Append(text));
    } else if (!(io.out << text << std::flush)) {
      return kExitData;  // RunProcess says why.
    }
    text.clear();
  }
  if (file) TENURE_RETURN_IF_ERROR(file->Commit());
  return kExitDone;
}

}  // namespace

int RunAgenticWorkload(const WorkloadArguments& arguments, const Io& io) {
  const absl::StatusOr<int> code = Write(arguments, io);
  if (code.ok()) return *code;
  io.err << fmt::format("tenure workload: {}\n", Message(code.status()));
  return absl::IsInvalidArgument(code.status()) ? kExitUsage : kExitData;
}

}  // namespace tenure::cli
