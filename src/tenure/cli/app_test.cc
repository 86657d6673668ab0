#include "tenure/cli/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Result {
  int code = 0;
  std::string out;
  std::string err;
};

class AppTest : public ::testing::Test {
 protected:
  AppTest() : folder_(std::filesystem::path(::testing::TempDir()) / ("tenure_app_test_" + std::string(TestName()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write(
        "model.json",
        R"({"name": "full-512", "hash_block_size": 512, "groups": [{"kind": "full", "block_size": 512, "bytes": 512}]})");
    Write("trace.jsonl", kLine0 + kLine1);
  }
  ~AppTest() override { std::filesystem::remove_all(folder_); }

  Result RunIt(std::vector<std::string> arguments, bool terminal = false) {
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    const int code = ::tenure::cli::Run(arguments, Io{in, out, err, terminal, interrupted_});
    return {code, out.str(), err.str()};
  }
  Result Replay(const std::string& trace, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"replay", Path(trace), "--model", Path("model.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunIt(arguments);
  }
  // One line on standard error that starts as given, nothing on standard output.
  void ExpectError(const Result& result, int code, const std::string& part) {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(Path(name), std::ios::binary) << text; }
  std::string Read(const std::string& name) {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t FilesInFolder() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  inline static const std::string kLine0 =
      "{\"timestamp\": 0, \"input_length\": 1025, \"output_length\": 1, \"hash_ids\": [1, 2, 3]}\n";
  inline static const std::string kLine1 =
      "{\"timestamp\": 9, \"input_length\": 1025, \"output_length\": 1, \"hash_ids\": [1, 2, 4]}\n";
  std::atomic<bool> interrupted_ = false;

 private:
  static const char* TestName() { return ::testing::UnitTest::GetInstance()->current_test_info()->name(); }
  std::filesystem::path folder_;
};

TEST_F(AppTest, HelpAndVersionAreForStandardOutput) {
  const Result help = RunIt({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"replay", "workload", "models", "explain"}) EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_THAT(RunIt({"replay", "--help"}).out, HasSubstr("--capacity"));
  EXPECT_THAT(RunIt({"workload", "agentic", "--help"}).out, HasSubstr("--sessions"));
  const Result version = RunIt({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("tenure 0."));
}

TEST_F(AppTest, NoArgumentsPrintHelpAndAreAUsageError) {
  const Result result = RunIt({});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("Usage"));
}

TEST_F(AppTest, WhatTheParserDoesNotKnowIsAUsageErrorOfOneLine) {
  ExpectError(RunIt({"repaly"}), 2, "repaly");
  ExpectError(RunIt({"replay"}), 2, "TRACE");
  ExpectError(Replay("trace.jsonl", {"--capasity", "1GiB"}), 2, "--capasity");
  ExpectError(Replay("trace.jsonl", {"--capacity"}), 2, "--capacity");
  ExpectError(RunIt({"workload"}), 2, "subcommand");
}

TEST_F(AppTest, ReplayPrintsOneColumnAModeAndWritesTheSameAsJson) {
  const Result result = Replay("trace.jsonl", {"--lease", "all,selective", "--json", Path("report.json")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("lease all   lease selective"));
  EXPECT_THAT(result.out, HasSubstr("1,024"));
  const auto json = nlohmann::json::parse(Read("report.json"));
  EXPECT_EQ(json["runs"][0]["modes"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["modes"][0]["hit_tokens"], 1024);
  EXPECT_EQ(json["runs"][0]["options"]["capacity_bytes"], nullptr);
  EXPECT_FALSE(json["runs"][0]["incomplete"].get<bool>());
}

TEST_F(AppTest, SeveralTracesAreReplayedEachOnAFreshStore) {
  const Result result = RunIt({"replay", Path("trace.jsonl"), Path("trace.jsonl"), "--model", Path("model.json"),
                               "--json", Path("report.json")});
  EXPECT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(Read("report.json"));
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["reusable_tokens"], json["runs"][1]["reusable_tokens"]);
}

TEST_F(AppTest, EveryPoolAndLookupRuns) {
  for (const char* pool : {"closed", "independent", "mooncake"}) {
    for (const char* lookup : {"tail-first", "exhaustive"}) {
      const Result result = Replay("trace.jsonl", {"--pool", pool, "--lookup", lookup, "--capacity", "1MiB"});
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(result.out, HasSubstr(std::string(pool) + " pool, 1.0 MiB; " + lookup));
    }
  }
}

TEST_F(AppTest, BadOptionValuesAreUsageErrorsThatNameThem) {
  ExpectError(Replay("trace.jsonl", {"--capacity", "0"}), 2, "--capacity \"0\": give more than 0");
  ExpectError(Replay("trace.jsonl", {"--capacity", "-1"}), 2, "--capacity");
  ExpectError(Replay("trace.jsonl", {"--capacity=-1"}), 2, "--capacity \"-1\"");
  ExpectError(Replay("trace.jsonl", {"--capacity", "10 apples"}), 2, "--capacity \"10 apples\"");
  ExpectError(Replay("trace.jsonl", {"--capacity", "511"}), 2, "less than one object");
  ExpectError(Replay("trace.jsonl", {"--pool", "open"}), 2,
              "--pool \"open\": give one of closed, independent, mooncake");
  ExpectError(Replay("trace.jsonl", {"--lease", "all,none"}), 2, "--lease \"none\"");
  ExpectError(Replay("trace.jsonl", {"--lease", "all,all"}), 2, "twice");
  ExpectError(Replay("trace.jsonl", {"--lookup", "fast"}), 2, "--lookup \"fast\"");
  ExpectError(Replay("trace.jsonl", {"--trace-block", "0"}), 2, "--trace-block \"0\"");
  ExpectError(Replay("trace.jsonl", {"--state-every", "700"}), 2, "--state-every 700");
  ExpectError(Replay("trace.jsonl", {"--lease-ttl", "10"}), 2, "--lease-ttl \"10\"");
  ExpectError(Replay("trace.jsonl", {"--lease-ttl", "25h"}), 2, "--lease-ttl 25h");
  ExpectError(RunIt({"replay", Path("trace.jsonl"), "--model", "llama-9"}), 2, "--model llama-9");
}

TEST_F(AppTest, BadFilesAreDataErrorsThatNameThePlace) {
  ExpectError(Replay("none.jsonl"), 1, "none.jsonl: No such file");
  ExpectError(Replay("."), 1, "Is a directory");
  Write("empty.jsonl", "");
  ExpectError(Replay("empty.jsonl"), 1, "empty.jsonl: the file is empty");
  Write("cut.jsonl", kLine0 + kLine1.substr(0, 40));
  ExpectError(Replay("cut.jsonl"), 1, "cut.jsonl:2: the line is cut off");
  Write("text.jsonl", kLine0 + "hello\n");
  ExpectError(Replay("text.jsonl"), 1, "text.jsonl:2: not JSON");
  Write("back.jsonl", kLine1 + kLine0);
  ExpectError(Replay("back.jsonl"), 1, "back.jsonl:2: timestamp 0 goes back");
  Write("ids.jsonl", "{\"timestamp\": 0, \"input_length\": 1025, \"output_length\": 1, \"hash_ids\": [1, 2]}\n");
  ExpectError(Replay("ids.jsonl"), 1, "ids.jsonl:1: hash_ids has 2 entries");
  for (const char* value : {"-1", "1.5", "9223372036854775808"}) {
    Write("value.jsonl", std::string("{\"timestamp\": ") + value +
                             ", \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n");
    ExpectError(Replay("value.jsonl"), 1, std::string("value.jsonl:1: timestamp ") + value);
  }
  ExpectError(RunIt({"replay", Path("trace.jsonl"), "--model", Path("model.json"), "--trace-block", "768"}), 1,
              "model.json: hash_block_size 512");
  Write("bad_model.json",
        R"({"name": "x", "hash_block_size": 512, "groups": [{"kind": "full", "block_size": 700, "bytes": 1}]})");
  ExpectError(RunIt({"replay", Path("trace.jsonl"), "--model", Path("bad_model.json")}), 1,
              "bad_model.json: groups[0].block_size 700");
}

TEST_F(AppTest, ATraceBlockThatDoesNotFitTheTraceIsADataError) {
  const Result result = RunIt({"replay", Path("trace.jsonl"), "--trace-block", "256"});
  ExpectError(result, 1, "trace.jsonl:1: hash_ids has 3 entries, but input_length 1025 at --trace-block 256 needs 5");
}

TEST_F(AppTest, AfterADataErrorNoReportIsLeftBehind) {
  Write("back.jsonl", kLine1 + kLine0);
  const size_t files = FilesInFolder();
  ExpectError(Replay("back.jsonl", {"--json", Path("report.json")}), 1, "goes back");
  EXPECT_EQ(FilesInFolder(), files);
}

TEST_F(AppTest, AnUnwritableReportIsADataErrorBeforeTheReplay) {
  ExpectError(Replay("trace.jsonl", {"--json", Path("no/such/folder/report.json")}), 1,
              "cannot be written (No such file");
  ExpectError(Replay("trace.jsonl", {"--json", Path(".")}), 1, "cannot be written (Is a directory)");
}

TEST_F(AppTest, AFullDiskUnderTheReportIsADataError) {
  const Result result = Replay("trace.jsonl", {"--json", "/dev/full"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("/dev/full: cannot be written (No space left on device)"));
}

TEST_F(AppTest, AReportReplacesTheOldOneAndKeepsALinkALink) {
  Write("old.json", "old");
  std::filesystem::create_symlink(Path("old.json"), Path("link.json"));
  EXPECT_EQ(Replay("trace.jsonl", {"--json", Path("link.json")}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link.json")));
  EXPECT_THAT(Read("old.json"), StartsWith("{"));
}

TEST_F(AppTest, AnInterruptedReplayPrintsWhatItHasAndSaysSo) {
  interrupted_ = true;
  const Result result = Replay("trace.jsonl", {"--json", Path("report.json")});
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.out, HasSubstr("(INCOMPLETE): 0 requests"));
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
  EXPECT_TRUE(nlohmann::json::parse(Read("report.json"))["runs"][0]["incomplete"].get<bool>());
}

TEST_F(AppTest, AProgressBarIsDrawnOnATerminalOnlyAndCleared) {
  const Result terminal = RunIt({"replay", Path("trace.jsonl"), "--model", Path("model.json")}, true);
  EXPECT_THAT(terminal.err, HasSubstr("% "));
  EXPECT_TRUE(terminal.err.ends_with("\r\x1b[K"));
  EXPECT_EQ(Replay("trace.jsonl").err, "");
}

TEST_F(AppTest, AWorkloadCanBeReplayed) {
  const Result text = RunIt({"workload", "agentic", "--sessions", "4", "--requests", "50", "--seed", "3"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 50);
  const Result file = RunIt(
      {"workload", "agentic", "--sessions", "4", "--requests", "50", "--seed", "3", "--output", Path("agentic.jsonl")});
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(Read("agentic.jsonl"), text.out);
  EXPECT_EQ(Replay("agentic.jsonl").code, 0);
  ExpectError(RunIt({"workload", "agentic", "--requests", "-5"}), 2, "--requests");
  ExpectError(RunIt({"workload", "agentic", "--tool-pause", "6"}), 2, "--tool-pause \"6\"");
  ExpectError(RunIt({"workload", "agentic", "--output", Path("no/folder/x")}), 1, "cannot be written");
}

TEST_F(AppTest, ModelsListsWhatATokenAndAStateWeigh) {
  const Result result = RunIt({"models"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("llama-3.1-70b"));
  EXPECT_THAT(result.out, HasSubstr("327,680"));
  EXPECT_THAT(result.out, HasSubstr("43,417,600"));
}

}  // namespace
}  // namespace tenure::cli
