// Generated traces of agentic coding sessions, in the format of request traces (docs/operating/replay.md names every
// parameter).
//
// A session is one agent: a shared system prompt, then turns that each append the model's output and a tool's result to
// the prompt. Between turns it waits for the tool, now and then for a person; now and then it goes back to an earlier
// turn and continues from there, or starts sub-agents that run in parallel on prompts of their own and waits for all of
// them. The same options give the same requests on every machine. Memory is bounded by the sessions that are alive. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/units.h"
#include "tenure/sim/trace.h"

namespace tenure::sim {

struct AgenticOptions {
  uint64_t seed = 1;
  int64_t requests = 6000;  // In all; then the trace ends, whatever the sessions are doing.
  int64_t sessions = 64;    // Alive at one time; a session that ends is replaced after a pause.
  Tokens block{512};        // Tokens of one hash id.

  int64_t system_prompts = 4;      // Different ones; a session draws one.
  Tokens system_tokens{12'000};    // Instructions and tool descriptions, each.
  Tokens subagent_tokens{6'000};   // The one system prompt of all sub-agents.
  Tokens task_tokens_mean{1'500};  // First message; exponential, as all means below.
  Tokens output_tokens_mean{350};
  Tokens tool_tokens_mean{1'200};  // A tool's result.
  int64_t turns_mean = 40;         // Of a session; geometric.
  int64_t subagent_turns_mean = 6;
  Tokens context_max{180'000};  // A session whose prompt would be longer ends.
  absl::Duration tool_pause_mean = absl::Seconds(6);
  absl::Duration person_pause_mean = absl::Seconds(150);
  absl::Duration restart_pause_mean =
      absl::Seconds(60);          // From a session's end to the next one's start, and between first starts.
  double person_share = 0.08;     // Turns that wait for a person instead of a tool.
  double branch_share = 0.03;     // Turns that go back to an earlier turn of the session.
  double subagents_share = 0.04;  // Turns that start 2 to subagents_max sub-agents.
  int64_t subagents_max = 4;
  int64_t output_tokens_per_second = 60;
};

inline constexpr int64_t kWorkloadRequestsMax = int64_t{1} << 32;
inline constexpr int64_t kWorkloadSessionsMax = int64_t{1} << 20;

class AgenticWorkload final : public RequestSource {
 public:
  // InvalidArgument names the option.
  static absl::StatusOr<std::unique_ptr<AgenticWorkload>> Create(const AgenticOptions& options);
  ~AgenticWorkload() override;

  absl::StatusOr<bool> Next(TraceRequest& request) override;

 private:
  class Core;
  explicit AgenticWorkload(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// One line of a trace, with its newline.
void AppendTraceLine(const TraceRequest& request, std::string& text);

}  // namespace tenure::sim
