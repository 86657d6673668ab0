// The commands that read, write or describe traces. Each takes its options as typed text, checks all of them before it
// does anything, and returns an exit code; every error is one line on `io.err`.
#pragma once

#include <string>
#include <vector>

#include "tenure/cli/io.h"

namespace tenure::cli {

// Texts as given; the defaults are the documented ones.
struct ReplayArguments {
  std::vector<std::string> traces;
  std::string capacity = "unlimited";
  std::string pool = "closed";
  std::string lease = "selective";
  std::string lookup = "tail-first";
  std::string model = "llama-3.1-70b";
  std::string trace_block = "512";
  std::string state_every = "0";
  std::string lease_ttl = "10s";
  std::string json;  // Empty: no file.
};
int RunReplay(const ReplayArguments& arguments, const Io& io);

struct WorkloadArguments {
  std::string sessions = "64";
  std::string requests = "6000";
  std::string seed = "1";
  std::string block = "512";
  std::string system_prompts = "4";
  std::string system_tokens = "12000";
  std::string turns = "40";
  std::string context_max = "180000";
  std::string tool_pause = "6s";
  std::string person_pause = "150s";
  std::string output;  // Empty: standard output.
};
int RunAgenticWorkload(const WorkloadArguments& arguments, const Io& io);

int RunModels(const Io& io);

}  // namespace tenure::cli
