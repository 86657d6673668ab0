#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "tenure/base/status.h"
#include "tenure/sim/replay_report.h"

namespace tenure::sim {
namespace {

constexpr size_t kColumnWidthMin = 16;

double Percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}
std::string Share(int64_t part, int64_t whole) { return fmt::format("{:.2f} %", Percent(part, whole)); }

std::string Microseconds(double nanoseconds) { return fmt::format("{:.1f} us", nanoseconds / 1000.0); }

// "1 h 02 min 03 s".
std::string Span(int64_t milliseconds) {
  const int64_t seconds = milliseconds / 1000;
  return fmt::format("{} h {:02} min {:02} s", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string GroupText(const ModelProfile& model, size_t g) {
  const kv::GroupSpec& spec = model.config.groups()[g];
  std::string text = fmt::format("{} {}", kv::ToString(spec.kind), spec.block_size.value());
  if (spec.kind == kv::GroupKind::kWindow) text += fmt::format(" (window {})", spec.window.value());
  if (spec.kind == kv::GroupKind::kChunked) text += fmt::format(" (chunk {})", spec.chunk.value());
  if (spec.eagle) text += " eagle";
  return text + fmt::format(": {} an object", SizeText(model.chunk_bytes[g]));
}

std::string StateText(Tokens state_every) {
  return state_every == Tokens(0) ? "the last boundary of each prompt"
                                  : fmt::format("every {} tokens and the last boundary", Grouped(state_every.value()));
}

std::string Head(const ReplayRun& run) {
  const ReplayOptions& options = *run.options;
  const ReplayReport& report = run.report;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "trace     {}{}: {} requests, {} prompt tokens, {}\n", run.trace,
                 run.incomplete ? " (INCOMPLETE)" : "", Grouped(report.requests), Grouped(report.prompt_tokens),
                 Span(report.duration_ms));
  fmt::format_to(out, "model     {}", options.model.name);
  for (size_t g = 0; g < options.model.chunk_bytes.size(); ++g)
    fmt::format_to(out, "; {}", GroupText(options.model, g));
  fmt::format_to(out, "\nstore     {} pool, {}; {} lookup, leases of {}\n", ToString(options.pool),
                 options.capacity ? SizeText(*options.capacity) : "unlimited", ToString(options.lookup),
                 absl::FormatDuration(options.lease_ttl));
  fmt::format_to(out, "saved     every whole chunk of full attention; windows and states at {}\n",
                 StateText(options.state_every));
  fmt::format_to(out, "reusable  {} tokens ({}) with an unlimited store; {} tokens lie behind the last whole block\n\n",
                 Grouped(report.reusable_tokens), Share(report.reusable_tokens, report.prompt_tokens),
                 Grouped(report.tail_not_cacheable_tokens));
  return text;
}

using Cell = std::function<std::string(const ModeReport&)>;
struct Row {
  std::string name;
  Cell cell;  // Empty: a headline.
};

void AddDistribution(std::vector<Row>& rows, const std::string& name,
                     const std::function<const Histogram&(const ModeReport&)>& of,
                     const std::function<std::string(double)>& text) {
  rows.push_back({name + ", mean", [=](const ModeReport& mode) { return text(of(mode).mean()); }});
  rows.push_back(
      {"  median", [=](const ModeReport& mode) { return text(static_cast<double>(of(mode).Quantile(0.5))); }});
  rows.push_back({"  99th percentile",
                  [=](const ModeReport& mode) { return text(static_cast<double>(of(mode).Quantile(0.99))); }});
}

Cell Count(const std::function<int64_t(const ModeReport&)>& of) {
  return [of](const ModeReport& mode) { return Grouped(of(mode)); };
}

std::vector<Row> Rows(const ReplayReport& report) {
  const int64_t prompt_tokens = report.prompt_tokens;
  std::vector<Row> rows;
  rows.push_back({"hit rate (tokens)", [=](const ModeReport& mode) { return Share(mode.hit_tokens, prompt_tokens); }});
  rows.push_back({"hit tokens", Count([](const ModeReport& mode) { return mode.hit_tokens; })});
  rows.push_back({"computed tokens", Count([](const ModeReport& mode) { return mode.computed_tokens; })});
  rows.push_back({"requests without a hit", Count([](const ModeReport& mode) { return mode.requests_without_hit; })});
  rows.push_back(
      {"requests with a partial hit", Count([](const ModeReport& mode) { return mode.requests_with_partial_hit; })});
  rows.push_back(
      {"requests with a full hit", Count([](const ModeReport& mode) { return mode.requests_with_full_hit; })});
  const auto keys = [](double value) { return fmt::format("{:.1f}", value); };
  AddDistribution(
      rows, "keys probed a lookup", [](const ModeReport& mode) -> const Histogram& { return mode.keys_probed; }, keys);
  AddDistribution(
      rows, "keys leased a lookup", [](const ModeReport& mode) -> const Histogram& { return mode.keys_leased; }, keys);
  AddDistribution(
      rows, "lookup time", [](const ModeReport& mode) -> const Histogram& { return mode.lookup_nanoseconds; },
      Microseconds);
  rows.push_back({"objects stored", Count([](const ModeReport& mode) { return mode.pool.stored_total; })});
  rows.push_back({"objects evicted", Count([](const ModeReport& mode) { return mode.pool.evicted_total; })});
  rows.push_back({"bytes stored", [](const ModeReport& mode) { return SizeText(mode.pool.stored_bytes_total); }});
  rows.push_back({"bytes evicted", [](const ModeReport& mode) { return SizeText(mode.pool.evicted_bytes_total); }});
  rows.push_back({"objects held at the end", Count([](const ModeReport& mode) { return mode.pool.objects; })});
  rows.push_back({"puts refused", Count([](const ModeReport& mode) { return mode.puts_refused; })});
  rows.push_back(
      {"puts not tried behind a refused one", Count([](const ModeReport& mode) { return mode.puts_skipped; })});
  rows.push_back({"evictions refused, summed over refused puts, by reason", {}});
  rows.push_back({"  leased", Count([](const ModeReport& mode) { return mode.pool.refused_by.leased; })});
  rows.push_back({"  pinned", Count([](const ModeReport& mode) { return mode.pool.refused_by.pinned; })});
  rows.push_back({"  being written", Count([](const ModeReport& mode) { return mode.pool.refused_by.writing; })});
  rows.push_back(
      {"  waiting for a parent", Count([](const ModeReport& mode) { return mode.pool.refused_by.waiting; })});
  rows.push_back({"  parents of those", Count([](const ModeReport& mode) { return mode.pool.refused_by.parents; })});
  const auto lost = [=](int64_t tokens) {
    return fmt::format("{} ({})", Grouped(tokens), Share(tokens, prompt_tokens));
  };
  rows.push_back(
      {"tokens lost against an unlimited store", [=](const ModeReport& mode) { return lost(mode.lost.total()); }});
  rows.push_back({"  never saved (refused)", [=](const ModeReport& mode) { return lost(mode.lost.never_saved); }});
  constexpr std::array<std::string_view, kLostAges> kAges = {"younger than 2 min", "2 to 10 min", "older than 10 min"};
  for (size_t age = 0; age < kLostAges; ++age) {
    rows.push_back({fmt::format("  evicted, saved boundary {}", kAges[age]),
                    [=](const ModeReport& mode) { return lost(mode.lost.evicted[age]); }});
  }
  return rows;
}

}  // namespace

std::string_view ToString(ReplayPool pool) {
  switch (pool) {
    case ReplayPool::kClosed:
      return "closed";
    case ReplayPool::kIndependent:
      return "independent";
    case ReplayPool::kMooncake:
      return "mooncake";
  }
  return "unknown";
}

std::string_view ToString(connector::LeaseMode mode) {
  return mode == connector::LeaseMode::kAll ? "all" : "selective";
}

std::string_view ToString(kv::SearchMode mode) {
  return mode == kv::SearchMode::kExhaustive ? "exhaustive" : "tail-first";
}

std::string Grouped(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string SizeText(Bytes bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < Bytes(1024)) return fmt::format("{} B", bytes.value());
  double value = static_cast<double>(bytes.value()) / 1024.0;
  size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string RenderTable(const ReplayRun& run) {
  const std::vector<ModeReport>& modes = run.report.modes;
  // The first line of cells holds the columns' names; an empty row is a headline.
  std::vector<std::string> names = {""};
  std::vector<std::vector<std::string>> cells(1);
  for (const ModeReport& mode : modes) cells[0].push_back(fmt::format("lease {}", ToString(mode.lease)));
  for (const Row& row : Rows(run.report)) {
    names.push_back(row.name);
    cells.emplace_back();
    for (const ModeReport& mode : modes) cells.back().push_back(row.cell ? row.cell(mode) : "");
  }
  size_t name_width = 0;
  for (const std::string& name : names) name_width = std::max(name_width, name.size());
  size_t cell_width = kColumnWidthMin;
  for (const auto& row : cells) {
    for (const std::string& cell : row) cell_width = std::max(cell_width, cell.size());
  }
  std::string text = Head(run);
  for (size_t i = 0; i < names.size(); ++i) {
    std::string line = fmt::format("{:<{}}", names[i], name_width);
    for (const std::string& cell : cells[i]) line += fmt::format("  {:>{}}", cell, cell_width);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tenure::sim
