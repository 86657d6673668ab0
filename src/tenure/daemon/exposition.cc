#include "tenure/daemon/exposition.h"

#include <fmt/format.h>

#include <iterator>

namespace tenure::daemon {
namespace {

// Writes the lines of one figure after the other; those of one name share the lines that explain it.
class Page {
 public:
  void operator()(const MetricInfo& info, int64_t value) {
    auto out = std::back_inserter(text_);
    if (info.name != last_name_) {
      fmt::format_to(out, "# HELP {} {}\n# TYPE {} {}\n", info.name, info.help, info.name, info.type);
      last_name_ = info.name;
    }
    const bool labelled = !info.labels.empty();
    fmt::format_to(out, "{}{}{}{} {}\n", info.name, labelled ? "{" : "", info.labels, labelled ? "}" : "", value);
  }
  void operator()(const MetricInfo& info, Bytes value) { (*this)(info, value.value()); }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  std::string_view last_name_;
};

}  // namespace

std::string Expose(const store::PoolStats& pool, const DaemonStats& daemon) {
  Page page;
  const auto write = [&page](const MetricInfo& info, const auto& value) { page(info, value); };
  VisitPoolStats(pool, write);
  VisitDaemonStats(daemon, write);
  return page.Take();
}

}  // namespace tenure::daemon
