// A replay's report for people (a plain table, one column a lease mode) and for programs (JSON).
// docs/operating/replay.md explains each line.
//
// Pure functions; the same report gives the same text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tenure/base/units.h"
#include "tenure/sim/replay.h"

namespace tenure::sim {

// One trace's replay: what was run and what came of it.
struct ReplayRun {
  std::string trace;
  const ReplayOptions* options = nullptr;
  ReplayReport report;
  bool incomplete = false;  // Interrupted: the figures are those of the requests before.
};

// "closed", "independent", "mooncake"; "all", "selective"; "tail-first", "exhaustive".
std::string_view ToString(ReplayPool pool);
std::string_view ToString(connector::LeaseMode mode);
std::string_view ToString(kv::SearchMode mode);

// "1,234,567".
std::string Grouped(int64_t value);
// "160.0 MiB", "512 B".
std::string SizeText(Bytes bytes);

std::string RenderTable(const ReplayRun& run);
// One object with a format version and a list of runs, with a newline at the end.
std::string RenderJson(std::span<const ReplayRun> runs);

}  // namespace tenure::sim
