#include "tenure/sim/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tenure/base/status.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/sim/replay_report.h"
#include "tenure/sim/workload.h"

namespace tenure::sim {
namespace {

using connector::LeaseMode;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 512;

ModelProfile Profile(std::string_view groups) {
  auto profile = ParseModelProfile(fmt::format(R"({{"name": "test", "hash_block_size": 512, "groups": [{}]}})", groups),
                                   Tokens(kBlock));
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *std::move(profile);
}
ModelProfile FullModel() { return Profile(R"({"kind": "full", "block_size": 512, "bytes": 512})"); }
ModelProfile HybridModel() {
  return Profile(
      R"({"kind": "full", "block_size": 512, "bytes": 512}, {"kind": "state", "block_size": 512, "bytes": 4096})");
}
ModelProfile MixedModel() {
  return Profile(
      R"({"kind": "full", "block_size": 512, "bytes": 512}, {"kind": "full", "block_size": 1024, "bytes": 700},
                    {"kind": "window", "block_size": 512, "window": 1500, "bytes": 600},
                    {"kind": "state", "block_size": 1024, "eagle": true, "bytes": 2048})");
}

ReplayOptions Options(ModelProfile model, std::optional<Bytes> capacity, ReplayPool pool = ReplayPool::kClosed,
                      std::vector<LeaseMode> leases = {LeaseMode::kAll, LeaseMode::kSelective}) {
  return {.model = std::move(model),
          .capacity = capacity,
          .pool = pool,
          .lease_modes = std::move(leases),
          .lookup = kv::SearchMode::kTailFirst,
          .state_every = Tokens(0),
          .lease_ttl = absl::Seconds(10)};
}

std::vector<TraceRequest> Agentic(int64_t requests, uint64_t seed = 1) {
  AgenticOptions options;
  options.requests = requests;
  options.sessions = 12;
  options.seed = seed;
  options.block = Tokens(kBlock);
  auto workload = AgenticWorkload::Create(options).value();
  std::vector<TraceRequest> result;
  TraceRequest request;
  while (workload->Next(request).value()) result.push_back(request);
  return result;
}

ReplayReport ReportOf(ReplayOptions options, const std::vector<TraceRequest>& requests) {
  const ManualClock timer;
  auto replay = Replay::Create(std::move(options), timer);
  EXPECT_TRUE(replay.ok()) << replay.status();
  for (const TraceRequest& request : requests) {
    const absl::Status fed = (*replay)->Feed(request);
    EXPECT_TRUE(fed.ok()) << fed;
  }
  return (*replay)->Report();
}

TraceRequest Request(int64_t timestamp_ms, int64_t tokens, std::vector<int64_t> ids) {
  return {timestamp_ms, Tokens(tokens), Tokens(1), std::move(ids)};
}

// hit + lost = reusable and hit + computed = prompt, of every column.
void ExpectConserved(const ReplayReport& report) {
  for (const ModeReport& mode : report.modes) {
    EXPECT_EQ(mode.hit_tokens + mode.lost.total(), report.reusable_tokens);
    EXPECT_EQ(mode.hit_tokens + mode.computed_tokens, report.prompt_tokens);
    EXPECT_EQ(mode.requests_without_hit + mode.requests_with_partial_hit + mode.requests_with_full_hit,
              report.requests);
    EXPECT_EQ(mode.lookups.error_misses_total, 0);
  }
}

// The ten-line count of the traces' README: whole blocks, all but the last token's, stored at once.
int64_t CountReusable(const std::vector<TraceRequest>& requests) {
  std::set<int64_t> stored;
  int64_t tokens = 0;
  for (const TraceRequest& request : requests) {
    const int64_t whole = request.input_length.value() / kBlock;
    const int64_t usable = (request.input_length.value() - 1) / kBlock;
    int64_t hit = 0;
    while (hit < usable && stored.contains(request.hash_ids[static_cast<size_t>(hit)])) ++hit;
    tokens += hit * kBlock;
    stored.insert(request.hash_ids.begin(), request.hash_ids.begin() + whole);
  }
  return tokens;
}

TEST(Replay, AnUnlimitedStoreHitsExactlyWhatACountOfRepeatedBlocksSays) {
  const auto requests = Agentic(1500);
  const int64_t reusable = CountReusable(requests);
  ASSERT_GT(reusable, 0);
  for (const ReplayPool pool : {ReplayPool::kClosed, ReplayPool::kIndependent, ReplayPool::kMooncake}) {
    for (const kv::SearchMode lookup : {kv::SearchMode::kTailFirst, kv::SearchMode::kExhaustive}) {
      ReplayOptions options = Options(FullModel(), std::nullopt, pool);
      options.lookup = lookup;
      const ReplayReport report = ReportOf(std::move(options), requests);
      ASSERT_EQ(report.modes.size(), 2u);
      EXPECT_EQ(report.reusable_tokens, reusable);
      EXPECT_EQ(report.modes[0].hit_tokens, reusable);
      EXPECT_EQ(report.modes[1].hit_tokens, reusable);
      EXPECT_EQ(report.modes[0].lost.total(), 0);
      ExpectConserved(report);
    }
  }
}

TEST(Replay, APromptThatIsABlockMultipleLeavesItsLastTokenToCompute) {
  const ReplayReport report =
      ReportOf(Options(FullModel(), std::nullopt),
               {Request(0, 1024, {1, 2}), Request(1, 1024, {1, 2}), Request(2, 1025, {1, 2, 3})});
  EXPECT_EQ(report.modes[0].hit_tokens, 512 + 1024);
  EXPECT_EQ(report.modes[0].requests_with_full_hit, 2);
  EXPECT_EQ(report.modes[0].requests_without_hit, 1);
}

TEST(Replay, TokensBehindTheLastWholeBlockAreReportedAsTail) {
  const ReplayReport report = ReportOf(Options(FullModel(), std::nullopt), {Request(0, 1000, {1, 2})});
  EXPECT_EQ(report.tail_not_cacheable_tokens, 1000 - 512);
}

TEST(Replay, UnderPressureEveryPoolModelAndLeaseConservesTokensAndAllHitLess) {
  const auto requests = Agentic(kSanitized ? 300 : 1200);
  for (const ReplayPool pool : {ReplayPool::kClosed, ReplayPool::kIndependent, ReplayPool::kMooncake}) {
    for (const bool mixed : {false, true}) {
      for (const int64_t state_every : {int64_t{0}, int64_t{8192}}) {
        ReplayOptions options = Options(mixed ? MixedModel() : HybridModel(), Bytes(int64_t{1} << 20), pool);
        options.state_every = Tokens(state_every);
        const ReplayReport report = ReportOf(std::move(options), requests);
        SCOPED_TRACE(::testing::Message() << ToString(pool) << " mixed " << mixed << " state every " << state_every);
        ExpectConserved(report);
        for (const ModeReport& mode : report.modes) {
          EXPECT_GT(mode.hit_tokens, 0);
          EXPECT_GT(mode.lost.total(), 0);
          EXPECT_GT(mode.pool.evicted_total, 0);
          EXPECT_LE(mode.pool.used, mode.pool.capacity);
        }
      }
    }
  }
}

TEST(Replay, ALargerStoreNeverHitsLessOnThisWorkload) {
  const auto requests = Agentic(600);
  int64_t last = -1;
  for (const int64_t mebibytes : {1, 2, 4, 64}) {
    const ReplayReport report = ReportOf(
        Options(HybridModel(), Bytes(mebibytes << 20), ReplayPool::kClosed, {LeaseMode::kSelective}), requests);
    EXPECT_GE(report.modes[0].hit_tokens, last) << mebibytes;
    last = report.modes[0].hit_tokens;
  }
}

TEST(Replay, ALongerStateIntervalKeepsFewerStates) {
  const auto requests = Agentic(300);
  ReplayOptions sparse = Options(HybridModel(), std::nullopt, ReplayPool::kClosed, {LeaseMode::kSelective});
  ReplayOptions dense = sparse;
  dense.state_every = Tokens(512);
  const ReplayReport few = ReportOf(std::move(sparse), requests);
  const ReplayReport many = ReportOf(std::move(dense), requests);
  EXPECT_LT(few.modes[0].pool.objects, many.modes[0].pool.objects);
  EXPECT_LT(few.reusable_tokens, many.reusable_tokens);
}

TEST(Replay, LostTokensAreSortedByTheAgeOfTheLostBoundary) {
  // A store of four blocks: each filler of four blocks drives out what was there.
  const auto lost_after = [](int64_t minutes) {
    const int64_t back_ms = minutes * 60'000;
    ReplayOptions options = Options(FullModel(), Bytes(4 * 512), ReplayPool::kClosed, {LeaseMode::kSelective});
    const ReplayReport report = ReportOf(
        std::move(options),
        {Request(0, 1025, {1, 2, 100}), Request(30'000, 2049, {3, 4, 5, 6, 101}), Request(back_ms, 1025, {1, 2, 102})});
    ExpectConserved(report);
    return report.modes[0].lost;
  };
  EXPECT_GT(lost_after(1).evicted[kLostYoung], 0);
  EXPECT_GT(lost_after(2).evicted[kLostMiddle], 0);
  EXPECT_GT(lost_after(10).evicted[kLostMiddle], 0);
  EXPECT_GT(lost_after(11).evicted[kLostOld], 0);
  EXPECT_EQ(lost_after(11).never_saved, 0);
}

TEST(Replay, ARequestLongerThanTheStoreIsServedWithWhatFitsAndItsRefusalsAreCounted) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id <= 100; ++id) ids.push_back(id);
  ReplayOptions options = Options(FullModel(), Bytes(20 * 512), ReplayPool::kClosed, {LeaseMode::kSelective});
  const ReplayReport report =
      ReportOf(std::move(options), {Request(0, 100 * kBlock + 1, ids), Request(1000, 100 * kBlock + 1, ids)});
  const ModeReport& mode = report.modes[0];
  ExpectConserved(report);
  EXPECT_GE(mode.hit_tokens, 15 * kBlock);  // A prefix of all the room there was.
  EXPECT_GT(mode.puts_refused, 0);
  EXPECT_GT(mode.puts_skipped, 0);
  EXPECT_GT(mode.lost.never_saved, 0);
  EXPECT_GT(mode.pool.refused_full_total, 0);
}

TEST(Replay, TheSameRequestsAHundredTimesTakeConstantMemory) {
  auto requests = Agentic(1000);
  const ManualClock timer;
  auto replay = Replay::Create(Options(HybridModel(), Bytes(int64_t{8} << 20)), timer).value();
  const int64_t span_ms = requests.back().timestamp_ms + 60'000;
  const auto feed_all = [&] {
    for (TraceRequest& request : requests) {
      ASSERT_TRUE(replay->Feed(request).ok());
      request.timestamp_ms += span_ms;
    }
  };
  const auto memory = [&] {
    const ReplayReport report = replay->Report();
    return std::tuple(report.distinct_blocks, report.audit_bytes, report.modes[0].pool.index_bytes);
  };
  for (int round = 0; round < 3; ++round) feed_all();
  const auto before = memory();
  const int rounds = kSanitized ? 10 : 100;
  for (int round = 3; round < rounds; ++round) feed_all();
  EXPECT_EQ(memory(), before);
  const ReplayReport report = replay->Report();
  EXPECT_EQ(report.requests, int64_t{rounds} * 1000);
  EXPECT_LE(report.audit_bytes.value(), report.distinct_blocks * 200);
  ExpectConserved(report);
}

TEST(Replay, TwoRunsGiveTheSameReport) {
  const auto requests = Agentic(400, 3);
  const ReplayOptions options = Options(MixedModel(), Bytes(int64_t{1} << 20), ReplayPool::kIndependent);
  const ReplayRun first{"t", &options, ReportOf(options, requests), false};
  const ReplayRun second{"t", &options, ReportOf(options, requests), false};
  EXPECT_EQ(RenderTable(first), RenderTable(second));
  EXPECT_EQ(RenderJson({&first, 1}), RenderJson({&second, 1}));
}

TEST(Replay, RefusesOptionsByName) {
  const ManualClock timer;
  const auto error = [&](ReplayOptions options) {
    return std::string(Message(Replay::Create(std::move(options), timer).status()));
  };
  EXPECT_THAT(error(Options(FullModel(), Bytes(511))), HasSubstr("--capacity"));
  EXPECT_THAT(error(Options(FullModel(), std::nullopt, ReplayPool::kClosed, {})), HasSubstr("--lease"));
  ReplayOptions options = Options(FullModel(), std::nullopt);
  options.state_every = Tokens(500);
  EXPECT_THAT(error(options), HasSubstr("--state-every 500"));
  options = Options(FullModel(), std::nullopt);
  options.lease_ttl = absl::ZeroDuration();
  EXPECT_THAT(error(options), HasSubstr("--lease-ttl"));
}

TEST(Replay, ARequestWithTooFewIdsIsAnErrorNotACrash) {
  const ManualClock timer;
  auto replay = Replay::Create(Options(FullModel(), std::nullopt), timer).value();
  EXPECT_FALSE(replay->Feed(Request(0, 1024, {1})).ok());
  EXPECT_FALSE(replay->Feed(Request(0, 0, {})).ok());
  EXPECT_TRUE(replay->Feed(Request(0, 5, {1})).ok());
}

}  // namespace
}  // namespace tenure::sim
