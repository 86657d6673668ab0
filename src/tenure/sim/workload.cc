#include "tenure/sim/workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <queue>
#include <utility>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

constexpr size_t kNobody = SIZE_MAX;

// A prompt as it grows: whole blocks have an id for good, the rest of the tokens is a partial block.
struct Context {
  std::vector<int64_t> block_ids;
  Tokens tokens;
};

struct Agent {
  Context context;
  std::vector<Tokens> turn_ends;  // Prompt lengths a branch may go back to.
  int64_t turns_left = 0;
  size_t parent = kNobody;  // Set for a sub-agent.
  int64_t children = 0;     // Sub-agents that still run.
};

// An agent's next request. Equal times go in the order they were planned, so the trace is one sequence.
struct Event {
  int64_t time_ms = 0;
  int64_t sequence = 0;
  size_t agent = 0;
  friend bool operator>(const Event& a, const Event& b) {
    return a.time_ms != b.time_ms ? a.time_ms > b.time_ms : a.sequence > b.sequence;
  }
};

absl::Status Validate(const AgenticOptions& options) {
  const auto check = [](std::string_view what, int64_t value, int64_t minimum, int64_t maximum) {
    if (value >= minimum && value <= maximum) return absl::OkStatus();
    return InvalidArgument("{} {}: give a number from {} to {}", what, value, minimum, maximum);
  };
  const int64_t tokens_max = kTraceTokensMax.value() / 4;
  TENURE_RETURN_IF_ERROR(check("requests", options.requests, 1, kWorkloadRequestsMax));
  TENURE_RETURN_IF_ERROR(check("sessions", options.sessions, 1, kWorkloadSessionsMax));
  TENURE_RETURN_IF_ERROR(check("block", options.block.value(), 1, kTraceBlockMax.value()));
  TENURE_RETURN_IF_ERROR(check("system_prompts", options.system_prompts, 1, 1'000'000));
  for (const auto& [name, tokens] :
       {std::pair("system_tokens", options.system_tokens), std::pair("subagent_tokens", options.subagent_tokens),
        std::pair("task_tokens_mean", options.task_tokens_mean),
        std::pair("output_tokens_mean", options.output_tokens_mean),
        std::pair("tool_tokens_mean", options.tool_tokens_mean), std::pair("context_max", options.context_max)}) {
    TENURE_RETURN_IF_ERROR(check(name, tokens.value(), 1, tokens_max));
  }
  TENURE_RETURN_IF_ERROR(check("turns_mean", options.turns_mean, 1, 1'000'000));
  TENURE_RETURN_IF_ERROR(check("subagent_turns_mean", options.subagent_turns_mean, 1, 1'000'000));
  TENURE_RETURN_IF_ERROR(check("subagents_max", options.subagents_max, 2, 64));
  TENURE_RETURN_IF_ERROR(check("output_tokens_per_second", options.output_tokens_per_second, 1, 1'000'000));
  for (const auto& [name, share] :
       {std::pair("person_share", options.person_share), std::pair("branch_share", options.branch_share),
        std::pair("subagents_share", options.subagents_share)}) {
    if (!(share >= 0 && share <= 1)) return InvalidArgument("{} {}: give a number from 0 to 1", name, share);
  }
  for (const auto& [name, pause] : {std::pair("tool_pause_mean", options.tool_pause_mean),
                                    std::pair("person_pause_mean", options.person_pause_mean),
                                    std::pair("restart_pause_mean", options.restart_pause_mean)}) {
    if (pause < absl::ZeroDuration() || pause > absl::Hours(24))
      return InvalidArgument("{}: give a time from 0 to 24 h", name);
  }
  return absl::OkStatus();
}

}  // namespace

class AgenticWorkload::Core {
 public:
  explicit Core(const AgenticOptions& options) : options_(options), random_(options.seed) {
    for (int64_t i = 0; i < options_.system_prompts; ++i) system_prompts_.push_back(NewContext(options_.system_tokens));
    subagent_prompt_ = NewContext(options_.subagent_tokens);
    int64_t start_ms = 0;
    for (int64_t i = 0; i < options_.sessions; ++i) {
      Plan(start_ms, NewSession());
      start_ms += Pause(options_.restart_pause_mean) / options_.sessions;
    }
  }

  bool Next(TraceRequest& request) {
    if (written_ == options_.requests) return false;
    ++written_;
    TENURE_CHECK(!events_.empty());
    const Event event = events_.top();
    events_.pop();
    Agent& agent = agents_[event.agent];
    request.timestamp_ms = event.time_ms;
    request.input_length = agent.context.tokens;
    request.output_length = Length(options_.output_tokens_mean);
    request.hash_ids = agent.context.block_ids;
    if (agent.context.tokens % options_.block != Tokens(0)) request.hash_ids.push_back(next_id_++);
    const int64_t answered_ms =
        event.time_ms + request.output_length.value() * 1000 / options_.output_tokens_per_second;
    agent.turn_ends.push_back(agent.context.tokens);
    Extend(agent.context, request.output_length);
    FinishTurn(event.agent, answered_ms);
    return true;
  }

 private:
  // What follows an answer: the end, sub-agents, a branch, or the next turn.
  void FinishTurn(size_t index, int64_t now_ms) {
    Agent& agent = agents_[index];
    if (--agent.turns_left <= 0 || agent.context.tokens >= options_.context_max) return End(index, now_ms);
    if (agent.parent == kNobody && random_.Chance(options_.subagents_share)) return StartSubagents(index, now_ms);
    if (agent.parent == kNobody && random_.Chance(options_.branch_share)) GoBack(agent);
    Extend(agent.context, Length(options_.tool_tokens_mean));
    const bool person = agent.parent == kNobody && random_.Chance(options_.person_share);
    Plan(now_ms + Pause(person ? options_.person_pause_mean : options_.tool_pause_mean), index);
  }
  void GoBack(Agent& agent) {
    const size_t turn = random_.Below(agent.turn_ends.size());
    agent.context.tokens = agent.turn_ends[turn];
    agent.context.block_ids.resize(static_cast<size_t>(agent.context.tokens / options_.block));
    agent.turn_ends.resize(turn + 1);
  }
  void StartSubagents(size_t parent, int64_t now_ms) {
    const int64_t count = random_.Between(2, options_.subagents_max);
    agents_[parent].children = count;
    for (int64_t i = 0; i < count; ++i) {
      Agent agent{.context = subagent_prompt_,
                  .turn_ends = {},
                  .turns_left = Turns(options_.subagent_turns_mean),
                  .parent = parent,
                  .children = 0};
      Extend(agent.context, Length(options_.task_tokens_mean));
      Plan(now_ms, Add(std::move(agent)));
    }
  }
  void End(size_t index, int64_t now_ms) {
    const size_t parent = agents_[index].parent;
    agents_[index] = Agent();
    free_.push_back(index);
    if (parent == kNobody) return Plan(now_ms + Pause(options_.restart_pause_mean), NewSession());
    Extend(agents_[parent].context, Length(options_.tool_tokens_mean));  // The sub-agent's report.
    if (--agents_[parent].children == 0) Plan(now_ms, parent);
  }

  size_t NewSession() {
    const size_t prompt = random_.Below(system_prompts_.size());
    Agent agent{.context = system_prompts_[prompt],
                .turn_ends = {},
                .turns_left = Turns(options_.turns_mean),
                .parent = kNobody,
                .children = 0};
    Extend(agent.context, Length(options_.task_tokens_mean));
    return Add(std::move(agent));
  }
  size_t Add(Agent agent) {
    if (free_.empty()) {
      agents_.push_back(std::move(agent));
      return agents_.size() - 1;
    }
    const size_t index = free_.back();
    free_.pop_back();
    agents_[index] = std::move(agent);
    return index;
  }
  void Plan(int64_t time_ms, size_t agent) { events_.push({time_ms, next_sequence_++, agent}); }

  Context NewContext(Tokens tokens) {
    Context context;
    Extend(context, tokens);
    return context;
  }
  void Extend(Context& context, Tokens tokens) {
    context.tokens += tokens;
    while (static_cast<int64_t>(context.block_ids.size()) < context.tokens / options_.block)
      context.block_ids.push_back(next_id_++);
  }

  Tokens Length(Tokens mean) {
    const double length = random_.Exponential(static_cast<double>(mean.value()));
    return Tokens(std::clamp<int64_t>(std::llround(length), 1, 8 * mean.value()));
  }
  int64_t Turns(int64_t mean) { return 1 + std::llround(random_.Exponential(static_cast<double>(mean - 1))); }
  int64_t Pause(absl::Duration mean) {
    return std::llround(random_.Exponential(static_cast<double>(absl::ToInt64Milliseconds(mean))));
  }

  AgenticOptions options_;
  Random random_;
  std::vector<Context> system_prompts_;
  Context subagent_prompt_;
  std::vector<Agent> agents_;
  std::vector<size_t> free_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t next_id_ = 0;
  int64_t next_sequence_ = 0;
  int64_t written_ = 0;
};

AgenticWorkload::AgenticWorkload(std::unique_ptr<Core> core) : core_(std::move(core)) {}
AgenticWorkload::~AgenticWorkload() = default;

absl::StatusOr<std::unique_ptr<AgenticWorkload>> AgenticWorkload::Create(const AgenticOptions& options) {
  TENURE_RETURN_IF_ERROR(Validate(options));
  return std::unique_ptr<AgenticWorkload>(new AgenticWorkload(std::make_unique<Core>(options)));
}

absl::StatusOr<bool> AgenticWorkload::Next(TraceRequest& request) { return core_->Next(request); }

void AppendTraceLine(const TraceRequest& request, std::string& text) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [)",
                 request.timestamp_ms, request.input_length.value(), request.output_length.value());
  for (size_t i = 0; i < request.hash_ids.size(); ++i)
    fmt::format_to(out, "{}{}", i > 0 ? ", " : "", request.hash_ids[i]);
  text += "]}\n";
}

}  // namespace tenure::sim
