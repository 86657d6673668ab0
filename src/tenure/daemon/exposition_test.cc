// The format of the metrics page. That docs/reference/metrics.md has a line for each is tested on the program
// (tests/e2e).
#include "tenure/daemon/exposition.h"

#include <regex>
#include <set>
#include <sstream>

#include "gtest/gtest.h"

namespace tenure::daemon {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Exposition, EachMetricIsExplainedOnceAndBeforeItsSamples) {
  const std::regex sample(R"re(([a-z_]+)(\{[a-z]+="[a-z]+"\})? -?[0-9]+)re");
  std::set<std::string> explained;
  std::set<std::string> samples;
  std::string last;
  for (const std::string& line : Lines(Expose(store::PoolStats(), DaemonStats()))) {
    std::smatch parts;
    if (line.rfind("# HELP ", 0) == 0) {
      last = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(explained.insert(last).second) << last << " is explained twice";
    } else if (line.rfind("# TYPE ", 0) == 0) {
      const bool counter = line == "# TYPE " + last + " counter";
      EXPECT_TRUE(counter || line == "# TYPE " + last + " gauge") << line;
      EXPECT_EQ(counter, last.size() > 6 && last.substr(last.size() - 6) == "_total") << line;
    } else {
      ASSERT_TRUE(std::regex_match(line, parts, sample)) << line;
      EXPECT_EQ(parts[1], last);
      EXPECT_TRUE(samples.insert(parts[1].str() + parts[2].str()).second) << line;
    }
  }
  EXPECT_GT(samples.size(), 40u);
}

TEST(Exposition, ShowsTheFiguresItWasGiven) {
  store::PoolStats pool;
  pool.capacity = Bytes(int64_t{8} << 30);
  pool.held.pinned = 3;
  DaemonStats daemon;
  daemon.clients = 5;
  const std::string page = Expose(pool, daemon);
  EXPECT_NE(page.find("\ntenure_pool_capacity_bytes 8589934592\n"), std::string::npos);
  EXPECT_NE(page.find("\ntenure_pool_held_objects{reason=\"pinned\"} 3\n"), std::string::npos);
  EXPECT_NE(page.find("\ntenure_daemon_clients 5\n"), std::string::npos);
}

}  // namespace
}  // namespace tenure::daemon
