#include "tenure/cli/explain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tenure/base/test_scale_testing.h"
#include "tenure/cli/explain_request.h"
#include "tenure/kv/coordinator_testing.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/random_case_testing.h"

namespace tenure::cli {
namespace {

using nlohmann::json;

constexpr char kFull32Window8[] =
    R"("hash_block_size": 8, "scheduler_block_size": 32, "fine": false, "use_eagle": false, )"
    R"("groups": [{"kind": "full", "block_size": 32}, {"kind": "window", "block_size": 8, "window": 8}])";
constexpr char kFineFullState[] =
    R"("hash_block_size": 4, "scheduler_block_size": 16, "fine": true, "use_eagle": false, )"
    R"("groups": [{"kind": "full", "block_size": 16}, {"kind": "state", "block_size": 16}])";

std::string Ask(std::string_view op, std::string_view config, std::string_view fields) {
  return ExplainLine(fmt::format(R"({{"op": "{}", {}, {}}})", op, config, fields));
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// The error of a request, or nothing when it was answered.
std::string ErrorOf(std::string_view line) {
  const json answer = json::parse(ExplainLine(line));
  return answer.contains("error") ? answer["error"].get<std::string>() : "";
}

TEST(ExplainStoreMask, FollowsVectors) {
  const auto ask = [](std::string_view fields) { return Ask("store_mask", kFull32Window8, fields); };
  EXPECT_EQ(ask(R"("length": 128, "num_prompt_tokens": 100, "retention": null)"),
            R"({"masks":[null,"0001000100010001"]})");
  EXPECT_EQ(ask(R"("length": 128, "num_prompt_tokens": 100, "retention": 0)"),
            R"({"masks":[null,"0000000000010000"]})");
  EXPECT_EQ(ask(R"("length": 128, "num_prompt_tokens": 100, "retention": 64)"),
            R"({"masks":[null,"0000000100010001"]})");
  EXPECT_EQ(ask(R"("length": 128, "num_prompt_tokens": 100, "retention": 0, "start": 64)"),
            R"({"masks":[null,"00010000"]})");
  EXPECT_EQ(ask(R"("length": 128, "retention": 0)"), R"({"masks":[null,"0000000000000000"]})");
  EXPECT_EQ(ask(R"("length": 0)"), R"({"masks":[null,""]})");
  EXPECT_EQ(
      ExplainLine(
          R"({"op": "store_mask", "hash_block_size": 16, "scheduler_block_size": 16, "groups": )"
          R"([{"kind": "full", "block_size": 16}, {"kind": "state", "block_size": 16}], "length": 64, "start": 16})"),
      R"({"masks":[null,"000"]})");
}

TEST(ExplainLookupMask, FollowsVectors) {
  EXPECT_EQ(Ask("lookup_mask", kFull32Window8, R"("length": 128)"), R"({"masks":[null,"0001000100010001"]})");
  EXPECT_EQ(Ask("lookup_mask", Replaced(kFull32Window8, R"("window": 8)", R"("window": 16, "eagle": true)"),
                R"("length": 96)"),
            R"({"masks":[null,"001110111011"]})");
}

TEST(ExplainLoadMask, FollowsVectors) {
  EXPECT_EQ(Ask("load_mask", kFull32Window8, R"("length": 64)"), R"({"load":["11","00000001"]})");
  EXPECT_EQ(Ask("load_mask", kFull32Window8, R"("length": 95)"), R"({"load":["11","00000001"]})");
  EXPECT_EQ(Ask("load_mask", kFull32Window8, R"("length": 0)"), R"({"load":["",""]})");
  EXPECT_EQ(Ask("load_mask", kFineFullState, R"("length": 36)"), R"({"load":["111","001"]})");
  EXPECT_EQ(ExplainLine(R"({"op": "load_mask", "hash_block_size": 16, "scheduler_block_size": 16, "groups": )"
                        R"([{"kind": "chunked", "block_size": 16, "chunk": 64}], "length": 112})"),
            R"({"load":["0000111"]})");
}

TEST(ExplainHit, FollowsVectors) {
  const auto ask = [](std::string_view fields) { return Ask("hit", kFull32Window8, fields); };
  EXPECT_EQ(ask(R"("num_hashes": 12, "max_length": 96, "present": [[3, 7, 11], [3, 7]])"),
            R"({"hit":64,"load":["11","00000001"]})");
  EXPECT_EQ(ask(R"("num_hashes": 12, "max_length": 96, "present": [[3, 7], [11]])"), R"({"hit":0,"load":["",""]})");
  const std::string eagle = Replaced(kFull32Window8, R"("use_eagle": false)", R"("use_eagle": true)");
  EXPECT_EQ(Ask("hit", eagle, R"("num_hashes": 12, "max_length": 96, "present": [[3, 7, 11], [7]])"),
            R"({"hit":0,"load":["",""]})");
  EXPECT_EQ(
      Ask("hit", eagle, R"("num_hashes": 12, "max_length": 96, "present": [[3, 7, 11], [7]], "apply_eagle": false)"),
      R"({"hit":64,"load":["11","00000001"]})");
  EXPECT_EQ(Ask("hit", kFineFullState, R"("num_hashes": 12, "max_length": 48, "present": [[3, 7, 11], [8]])"),
            R"({"hit":36,"load":["111","001"]})");
}

TEST(ExplainLookup, FollowsVectors) {
  EXPECT_EQ(Ask("lookup", kFineFullState,
                R"("num_hashes": 12, "num_tokens": 50, "present": [[3, 7, 11], [3, 8]], "mode": "exhaustive")"),
            R"({"hit":36,"tails":[[0,48],[1,36]],"load_set":[[0,3],[0,7],[0,11],[1,8]],"probed":24,"leased":4})");
  EXPECT_EQ(Ask("lookup", kFineFullState,
                R"("num_hashes": 12, "num_tokens": 48, "present": [[3, 7, 11], [9, 11]], "mode": "exhaustive")"),
            R"({"hit":0,"tails":[],"load_set":[],"probed":24,"leased":0})");
  // §14.11: full + state, 6 chunks on 2 ranks: 24 keys probed, 14 leased.
  const std::string both = R"("op": "lookup", "hash_block_size": 16, "scheduler_block_size": 16, "groups": )"
                           R"([{"kind": "full", "block_size": 16}, {"kind": "state", "block_size": 16}], )"
                           R"("num_hashes": 6, "num_tokens": 100, "present": [[0,1,2,3,4,5],[0,1,2,3,4,5]])";
  EXPECT_EQ(
      ExplainLine("{" + both + R"(, "ranks": 2, "mode": "exhaustive"})"),
      R"({"hit":96,"tails":[[0,96],[1,96]],"load_set":[[0,0],[0,1],[0,2],[0,3],[0,4],[0,5],[1,5]],"probed":24,"leased":14})");
  const json tail_first = json::parse(ExplainLine("{" + both + "}"));
  EXPECT_EQ(tail_first["hit"], 96);
  EXPECT_LT(tail_first["probed"], 12);
}

TEST(ExplainKeys, FollowsVectors) {
  EXPECT_EQ(ExplainLine(R"({"op": "keys", "model": "test-model", "group": 1, "hashes": ["6833"]})"),
            R"({"keys":["test-model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@6833"]})");
  EXPECT_EQ(
      ExplainLine(R"({"op": "keys", "model": "meta/Llama-3", "cache_prefix": "tenantA", "tp_rank": 3, "pcp_rank": 1, )"
                  R"("namespace": "@store_pp:2@store_format:tp_shared_mqa", "dcp_rank": 1, "pp_rank": 2, "group": 4, )"
                  R"("hashes": ["AB12", "00"]})"),
      R"({"keys":["tenantA@Llama-3@store_pp:2@store_format:tp_shared_mqa@tp_rank:3@pcp1@dcp1@pp_rank:2@group:4@ab12",)"
      R"("tenantA@Llama-3@store_pp:2@store_format:tp_shared_mqa@tp_rank:3@pcp1@dcp1@pp_rank:2@group:4@00"]})");
}

TEST(ExplainErrors, NameTheFieldAndItsValue) {
  const std::string ok = fmt::format(R"({{"op": "lookup_mask", {}, "length": 32}})", kFull32Window8);
  ASSERT_EQ(ErrorOf(ok), "");
  const auto with = [&ok](std::string_view from, std::string_view to) { return ErrorOf(Replaced(ok, from, to)); };
  const auto expect = [](const std::string& error, std::string_view start) {
    EXPECT_EQ(error.substr(0, start.size()), start) << error;
  };
  expect(with(R"("lookup_mask")", R"("mask")"), R"(op is "mask"; use)");
  expect(with(R"("op": "lookup_mask", )", ""), "op is missing");
  expect(with(R"("length": 32)", R"("length": -1)"), "length is -1; use a whole number from 0 to");
  expect(with(R"("length": 32)", R"("length": 1.5)"), "length is 1.5;");
  expect(with(R"("length": 32)", R"("length": 9223372036854775808)"), "length is 9223372036854775808;");
  expect(with(R"("length": 32)", R"("length": 18446744073709551616)"), "length is 1.8446744073709552e+19;");
  expect(with(R"("length": 32)", R"("length": 1e400)"), "line is not JSON");
  expect(with(R"("length": 32)", R"("length": "32")"), R"(length is "32";)");
  expect(with(R"("length": 32)", R"("length": [1, 2])"), "length is a list of 2;");
  expect(with(R"(, "length": 32)", ""), "length is missing");
  expect(with(R"("hash_block_size": 8)", R"("hash_block_size": 0)"), "hash_block_size is 0;");
  expect(with(R"("scheduler_block_size": 32)", R"("scheduler_block_size": 36)"), "scheduler_block_size is 36;");
  expect(with(R"("fine": false)", R"("fine": 1)"), "fine is 1; use true or false");
  expect(with(R"("kind": "window")", R"("kind": "sliding")"), R"(groups[1].kind is "sliding";)");
  expect(with(R"("window": 8)", R"("window": 0)"), "groups[1].window is 0;");
  expect(with(R"(, "window": 8)", ""), "groups[1].window is missing");
  expect(with(R"("block_size": 32)", R"("block_size": 12)"), "groups[0].block_size is 12;");
  expect(ErrorOf(R"({"op": "hit", "hash_block_size": 1, "scheduler_block_size": 1, "groups": 7})"),
         "groups is 7; use a list");
  expect(ErrorOf(R"({"op": "hit", "hash_block_size": 1, "scheduler_block_size": 1, "groups": [7]})"),
         "groups[0] is 7;");
  expect(ErrorOf(R"({"op": "hit", "hash_block_size": 1, "scheduler_block_size": 1, "groups": []})"),
         "groups has 0 entries;");
}

TEST(ExplainErrors, NameWhatIsOutOfRange) {
  const auto expect = [](const std::string& answer, std::string_view part) {
    EXPECT_NE(answer.find(part), std::string::npos) << answer;
  };
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 12, "max_length": 96, "present": [[3]])"),
         "present is a list of 1");
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 12, "max_length": 96, "present": [[3], [12]])"),
         "present[1][0] is 12;");
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 12, "max_length": 96, "present": [[3], [-1]])"),
         "present[1][0] is -1;");
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 12, "max_length": 96, "present": [[3], [18446744073709551615]])"),
         "present[1][0] is 18446744073709551615;");
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 12, "max_length": 96, "present": [[3], 4])"), "present[1] is 4;");
  expect(Ask("hit", kFull32Window8, R"("num_hashes": 16777217, "max_length": 96, "present": [[], []])"),
         "num_hashes is 16777217;");
  expect(Ask("lookup", kFull32Window8, R"("num_hashes": 12, "num_tokens": 96, "present": [[], []], "ranks": 0)"),
         "ranks is 0;");
  expect(Ask("lookup", kFull32Window8, R"("num_hashes": 12, "num_tokens": 96, "present": [[], []], "mode": "all")"),
         R"(mode is \"all\";)");
  expect(Ask("lookup", kFull32Window8, R"("num_hashes": 4096, "num_tokens": 96, "present": [[], []], "ranks": 1024)"),
         "num_hashes is 4096; use at most 2048");
  expect(Ask("store_mask", kFull32Window8, R"("length": 33)"), "length is 33; use a multiple of the hit alignment 32");
  expect(Ask("store_mask", kFull32Window8, R"("length": 32, "retention": 48)"), "retention is 48;");
  expect(Ask("store_mask", kFull32Window8, R"("length": 32, "num_prompt_tokens": 0)"), "num_prompt_tokens is 0;");
  expect(Ask("store_mask", kFull32Window8, R"("length": 32, "start": -1)"), "start is -1;");
  expect(Ask("lookup_mask", kFull32Window8, R"("length": 134217736)"), "length is 134217736;");
  expect(ExplainLine(R"({"op": "keys", "model": "m", "group": 0, "hashes": ["abc"]})"), R"(hashes[0] is \"abc\";)");
  expect(ExplainLine(R"({"op": "keys", "model": "m", "group": 0, "hashes": ["zz"]})"), R"(hashes[0] is \"zz\";)");
  expect(ExplainLine(R"({"op": "keys", "model": "/", "group": 0, "hashes": []})"), "model is empty");
  expect(ExplainLine(R"({"op": "keys", "model": "a\u0000b", "group": 0, "hashes": []})"),
         "model has the control character 0");
  expect(ExplainLine(R"({"op": "keys", "model": "m", "group": -1, "hashes": []})"), "group is -1;");
}

TEST(ExplainErrors, OfLinesThatAreNoRequests) {
  EXPECT_EQ(ErrorOf(""), "line is empty; use a JSON object");
  EXPECT_EQ(ErrorOf("[]"), "line is a list of 0; use a JSON object");
  EXPECT_EQ(ErrorOf("{\"op\": "), "line is not JSON at byte 8; use one object in UTF-8 a line");
  EXPECT_NE(ErrorOf("{\"op\": \"\xff\xfe\"}").find("line is not JSON at byte"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(100'000, '[')).find("nested more than 8 deep at byte 9"), std::string::npos);
  EXPECT_NE(ErrorOf("[" + std::string(5'000'000, ',')).find("values; use at most"), std::string::npos);
  // Text in an error may be any Unicode.
  EXPECT_NE(ErrorOf("{\"op\": \"\xc3\xa9\"}").find("op is \"\\u00e9\""), std::string::npos);
}

std::vector<std::string> Serve(const std::string& input) {
  std::istringstream in(input);
  std::ostringstream out;
  EXPECT_EQ(RunExplain(in, out), 0);
  std::istringstream lines(out.str());
  std::vector<std::string> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(line);
  return answers;
}

TEST(RunExplain, AnswersEveryLineInOrderWhateverItHolds) {
  const std::string good = R"({"op": "keys", "model": "m", "group": 0, "hashes": []})";
  const std::vector<std::string> answers = Serve(good + "\n\nnonsense\n" + good + "\r\n" + good);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[0], R"({"keys":[]})");
  EXPECT_EQ(answers[1].substr(0, 10), R"({"error":")");
  EXPECT_EQ(answers[2].substr(0, 10), R"({"error":")");
  EXPECT_EQ(answers[3], R"({"keys":[]})");
  EXPECT_EQ(answers[4], R"({"keys":[]})");
  EXPECT_TRUE(Serve("").empty());
}

TEST(RunExplain, ReadsOverALineThatIsTooLong) {
  const std::vector<std::string> answers = Serve(std::string(kExplainLineBytesMax + 1, 'x') + "\n" +
                                                 R"({"op": "keys", "model": "m", "group": 0, "hashes": []})");
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_NE(answers[0].find("line is longer than 67108864 bytes"), std::string::npos);
  EXPECT_EQ(answers[1], R"({"keys":[]})");
}

TEST(RunExplain, ReportsThatItsOutputFailed) {
  std::istringstream in("x\ny\n");
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(RunExplain(in, out), 1);
}

json ConfigJson(const kv::CacheConfig::Options& options) {
  json request = {{"hash_block_size", options.hash_block_size.value()},
                  {"scheduler_block_size", options.scheduler_block_size.value()},
                  {"fine", options.fine},
                  {"use_eagle", options.use_eagle},
                  {"groups", json::array()}};
  for (const kv::GroupSpec& spec : options.groups) {
    json group = {{"kind", kv::ToString(spec.kind)}, {"block_size", spec.block_size.value()}, {"eagle", spec.eagle}};
    if (spec.kind == kv::GroupKind::kWindow) group["window"] = spec.window.value();
    if (spec.kind == kv::GroupKind::kChunked) group["chunk"] = spec.chunk.value();
    request["groups"].push_back(group);
  }
  return request;
}

// Through JSON, whole programs' worth of rules agree with the oracle; what only the oracle's blocks show of an eagle
// window of one token (it passes over the chunk that a load would read) is left out.
TEST(ExplainProperty, AnswersAsTheOracle) {
  kv::testing::CaseCounts counts;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(RandomCases(20'000)); ++seed) {
    Random random(seed);
    const kv::testing::RandomCase one = kv::testing::MakeRandomCase(random);
    const kv::CacheConfig config = kv::testing::MustCreate(one.options);
    json request = ConfigJson(one.options);
    request["num_hashes"] = one.presence.num_hashes;
    request["present"] = one.presence.groups;
    request["op"] = "hit";
    const int64_t length_max = random.Between(0, one.num_tokens + 2 * config.scheduler_block_size().value());
    request["max_length"] = length_max;
    request["apply_eagle"] = random.Chance(0.8);
    const kv::testing::CoordinatorHit hit =
        kv::testing::OracleHit(config, one.presence, length_max, request["apply_eagle"].get<bool>());
    json answer = json::parse(ExplainLine(request.dump()));
    ASSERT_EQ(answer["hit"], hit.length) << "seed " << seed << ": " << request.dump();
    for (size_t g = 0; g < config.groups().size(); ++g) {
      if (config.groups()[g].window == Tokens(1)) continue;
      ASSERT_EQ(answer["load"][g], hit.blocks[g]) << "seed " << seed << ": " << request.dump();
    }
    request["op"] = "lookup";
    request["num_tokens"] = one.num_tokens;
    request["mode"] = "exhaustive";
    answer = json::parse(ExplainLine(request.dump()));
    const kv::Hit found = kv::testing::OracleLookup(config, one.presence, one.num_tokens);
    ASSERT_EQ(answer["hit"], found.length.value()) << "seed " << seed << ": " << request.dump();
    ASSERT_EQ(answer["load_set"].size(), kv::LoadSet(config, found).size()) << "seed " << seed;
    ASSERT_EQ(answer["probed"], kv::testing::OracleCandidates(config, one.presence.num_hashes, one.num_tokens).size())
        << "seed " << seed << ": " << request.dump();
    const int64_t last = std::max<int64_t>(one.num_tokens - 1, 0);
    counts.Count(config, one.presence, found.length.value(), RoundDown(Tokens(last), config.hit_alignment()).value());
  }
  std::printf("%s\n", counts.ToString().c_str());
  EXPECT_TRUE(counts.Enough()) << counts.ToString();
}

}  // namespace
}  // namespace tenure::cli
