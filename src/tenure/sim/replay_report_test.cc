#include "tenure/sim/replay_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace tenure::sim {
namespace {

using ::testing::HasSubstr;

class ReplayReportTest : public ::testing::Test {
 protected:
  ReplayReportTest()
      : options_{.model = MakeBuiltinProfile(BuiltinModels()[3], Tokens(512)).value(),
                 .capacity = Bytes(int64_t{512} << 30),
                 .pool = ReplayPool::kClosed,
                 .lease_modes = {connector::LeaseMode::kAll, connector::LeaseMode::kSelective},
                 .lookup = kv::SearchMode::kTailFirst,
                 .state_every = Tokens(8192),
                 .lease_ttl = absl::Seconds(10)} {
    run_.trace = "log.jsonl";
    run_.options = &options_;
    run_.report.requests = 3;
    run_.report.prompt_tokens = 1'000'000;
    run_.report.reusable_tokens = 600'000;
    run_.report.duration_ms = 3'723'000;
    for (const auto lease : options_.lease_modes) {
      ModeReport mode;
      mode.lease = lease;
      mode.hit_tokens = 500'000;
      mode.computed_tokens = 500'000;
      mode.lost.never_saved = 25'000;
      mode.lost.evicted = {50'000, 20'000, 5'000};
      mode.keys_probed.Add(7);
      run_.report.modes.push_back(mode);
    }
  }

  ReplayOptions options_;
  ReplayRun run_;
};

TEST_F(ReplayReportTest, TheTableHasAColumnAModeAndAlignedLines) {
  const std::string table = RenderTable(run_);
  EXPECT_THAT(table, HasSubstr("lease all"));
  EXPECT_THAT(table, HasSubstr("lease selective"));
  EXPECT_THAT(table, HasSubstr("1 h 02 min 03 s"));
  EXPECT_THAT(table, HasSubstr("50.00 %"));
  EXPECT_THAT(table, HasSubstr("50,000 (5.00 %)"));
  EXPECT_THAT(table, HasSubstr("closed pool, 512.0 GiB"));
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  size_t width = 0;
  std::istringstream lines(table.substr(table.find("\n\n") + 2));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("by reason") != std::string::npos) continue;  // A headline.
    if (width == 0) width = line.size();
    EXPECT_EQ(line.size(), width) << line;
  }
}

TEST_F(ReplayReportTest, AnInterruptedRunSaysSoInBothForms) {
  EXPECT_EQ(RenderTable(run_).find("INCOMPLETE"), std::string::npos);
  run_.incomplete = true;
  EXPECT_THAT(RenderTable(run_), HasSubstr("INCOMPLETE"));
  EXPECT_TRUE(nlohmann::json::parse(RenderJson({&run_, 1}))["runs"][0]["incomplete"].get<bool>());
}

TEST_F(ReplayReportTest, JsonHoldsTheTablesFigures) {
  const auto json = nlohmann::json::parse(RenderJson({&run_, 1}));
  EXPECT_EQ(json["format"], "tenure-replay");
  EXPECT_EQ(json["version"], 1);
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["trace"], "log.jsonl");
  EXPECT_EQ(run["options"]["model"], "gpt-oss-120b");
  EXPECT_EQ(run["options"]["capacity_bytes"], int64_t{512} << 30);
  EXPECT_EQ(run["prompt_tokens"], 1'000'000);
  EXPECT_EQ(run["modes"][1]["lease"], "selective");
  EXPECT_EQ(run["modes"][0]["hit_rate"], 0.5);
  EXPECT_EQ(run["modes"][0]["lost"]["total_tokens"], 100'000);
  EXPECT_EQ(run["modes"][0]["keys_probed_per_lookup"]["p99"], 7);
}

TEST_F(ReplayReportTest, ANameThatIsNotUtf8StillGivesJson) {
  run_.trace = "log\xff.jsonl";
  EXPECT_FALSE(nlohmann::json::parse(RenderJson({&run_, 1}), nullptr, false).is_discarded());
}

TEST(ReportText, GroupsDigitsAndScalesSizes) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(-1234567), "-1,234,567");
  EXPECT_EQ(Grouped(INT64_MIN), "-9,223,372,036,854,775,808");
  EXPECT_EQ(SizeText(Bytes(512)), "512 B");
  EXPECT_EQ(SizeText(Bytes(int64_t{3} << 29)), "1.5 GiB");
  EXPECT_EQ(SizeText(Bytes(INT64_MAX)), "8.0 EiB");
}

}  // namespace
}  // namespace tenure::sim
