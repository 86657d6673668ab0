#include "tenure/sim/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

std::vector<TraceRequest> Generate(const AgenticOptions& options) {
  auto workload = AgenticWorkload::Create(options);
  EXPECT_TRUE(workload.ok()) << workload.status();
  std::vector<TraceRequest> requests;
  TraceRequest request;
  while ((*workload)->Next(request).value()) requests.push_back(request);
  return requests;
}

std::string Text(const std::vector<TraceRequest>& requests) {
  std::string text;
  for (const TraceRequest& request : requests) AppendTraceLine(request, text);
  return text;
}

TEST(AgenticWorkload, TheSameSeedGivesTheSameBytesAndAnotherOneOthers) {
  AgenticOptions options;
  options.requests = 500;
  const std::string once = Text(Generate(options));
  EXPECT_EQ(once, Text(Generate(options)));
  options.seed = 2;
  EXPECT_NE(once, Text(Generate(options)));
}

TEST(AgenticWorkload, WhatItWritesIsATrace) {
  AgenticOptions options;
  options.requests = 2000;
  const auto requests = Generate(options);
  ASSERT_EQ(requests.size(), 2000u);
  TraceReader reader("generated", MakeMemorySource(Text(requests)), options.block);
  TraceRequest request;
  size_t read = 0;
  for (absl::StatusOr<bool> more = reader.Next(request); *more; more = reader.Next(request)) {
    EXPECT_EQ(request.hash_ids, requests[read].hash_ids);
    EXPECT_EQ(request.timestamp_ms, requests[read].timestamp_ms);
    ++read;
  }
  EXPECT_EQ(read, requests.size());
}

TEST(AgenticWorkload, AnIdNamesItsBlockAndAllBeforeIt) {
  AgenticOptions options;
  options.requests = 3000;
  options.sessions = 16;
  std::map<int64_t, int64_t> previous_of;
  std::set<int64_t> partial;
  for (const TraceRequest& request : Generate(options)) {
    int64_t previous = -1;
    for (const int64_t id : request.hash_ids) {
      EXPECT_EQ(previous_of.emplace(id, previous).first->second, previous);
      previous = id;
    }
    if (request.input_length % options.block != Tokens(0)) {
      EXPECT_TRUE(partial.insert(request.hash_ids.back()).second);
    }
  }
}

// The shapes that the options promise: prefixes that grow, shared prompts, branches, and sub-agents at work at one
// instant.
TEST(AgenticWorkload, SessionsGrowShareBranchAndRunSubagentsInParallel) {
  AgenticOptions options;
  options.requests = 4000;
  options.sessions = 8;
  options.branch_share = 0.1;
  std::map<int64_t, int64_t> children;  // Distinct continuations of a block.
  std::set<int64_t> seen;
  int64_t grown = 0;
  int64_t branches = 0;
  for (const TraceRequest& request : Generate(options)) {
    const size_t whole = static_cast<size_t>(request.input_length / options.block);
    size_t known = 0;
    while (known < whole && seen.contains(request.hash_ids[known])) ++known;
    grown += known > static_cast<size_t>(options.system_tokens / options.block);
    for (size_t i = known; i < whole; ++i) {
      if (i > 0)
        branches += ++children[request.hash_ids[i - 1]] > 1 &&
                    i > static_cast<size_t>(options.system_tokens / options.block) + 3;
      seen.insert(request.hash_ids[i]);
    }
  }
  EXPECT_GT(grown, 2000);
  EXPECT_GT(branches, 20);
  options.branch_share = 0;
  options.subagents_share = 1;
  options.subagents_max = 2;
  options.sessions = 1;
  options.requests = 3;
  const auto requests = Generate(options);
  ASSERT_EQ(requests.size(), 3u);  // The session's first turn, then its two sub-agents at the same instant.
  EXPECT_EQ(requests[1].timestamp_ms, requests[2].timestamp_ms);
  EXPECT_EQ(requests[1].hash_ids[0], requests[2].hash_ids[0]);
  EXPECT_NE(requests[0].hash_ids[0], requests[1].hash_ids[0]);
}

TEST(AgenticWorkload, RefusesAnOptionOutOfRangeByName) {
  AgenticOptions options;
  options.requests = 0;
  EXPECT_THAT(std::string(Message(AgenticWorkload::Create(options).status())), ::testing::HasSubstr("requests 0"));
  options = {};
  options.branch_share = 1.5;
  EXPECT_THAT(std::string(Message(AgenticWorkload::Create(options).status())),
              ::testing::HasSubstr("branch_share 1.5"));
  options = {};
  options.tool_pause_mean = absl::Hours(25);
  EXPECT_THAT(std::string(Message(AgenticWorkload::Create(options).status())), ::testing::HasSubstr("tool_pause_mean"));
}

TEST(AppendTraceLine, WritesTheFormatOfThePublishedTraces) {
  std::string text;
  AppendTraceLine({.timestamp_ms = 1, .input_length = Tokens(600), .output_length = Tokens(2), .hash_ids = {7, 8}},
                  text);
  EXPECT_EQ(text, "{\"timestamp\": 1, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [7, 8]}\n");
}

}  // namespace
}  // namespace tenure::sim
