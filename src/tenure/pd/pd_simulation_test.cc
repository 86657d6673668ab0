// Random runs of a prefill and a decode engine under faults, and faults in the surroundings that the checks must find.
//
// TENURE_PD_SEEDS, TENURE_PD_FIRST_SEED and TENURE_PD_REQUESTS make a soak of it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tenure/base/test_scale_testing.h"
#include "tenure/pd/pd_world_testing.h"

namespace tenure::pd {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

// TP of P and of D by seed: equal, P with more ranks, D with more.
WorldOptions OptionsOf(int64_t seed) {
  WorldOptions options;
  options.seed = static_cast<uint64_t>(seed);
  options.prefill_tp = seed % 3 == 1 ? 2 : 1;
  options.decode_tp = seed % 3 == 2 ? 2 : 1;
  options.requests = FromEnvironment("TENURE_PD_REQUESTS", 1000);
  return options;
}

TEST(PdSimulation, NothingIsCorruptedLostOrLeakedUnderFaultsAndAllSucceedsAfterThem) {
  const int64_t first = FromEnvironment("TENURE_PD_FIRST_SEED", 1);
  const int64_t seeds = FromEnvironment("TENURE_PD_SEEDS", RandomCases(100));
  WorldReport sum;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    const WorldReport report = RunWorld(OptionsOf(seed));
    ASSERT_EQ(report.violation, "") << "seed " << seed;
    sum.received += report.received;
    sum.failed += report.failed;
    sum.aborted += report.aborted;
    sum.lost += report.lost;
    sum.expired += report.expired;
    sum.starts += report.starts;
    sum.stalls += report.stalls;
    sum.failed_writes += report.failed_writes;
    sum.late_bytes += report.late_bytes;
    sum.message_faults += report.message_faults;
    sum.late_pulls += report.late_pulls;
    sum.renewals += report.renewals;
  }
  // Each kind of trouble was there.
  for (const int64_t count : {sum.received, sum.failed, sum.aborted, sum.lost, sum.expired, sum.starts, sum.stalls,
                              sum.failed_writes, sum.late_bytes, sum.message_faults, sum.late_pulls, sum.renewals}) {
    EXPECT_GT(count, 0);
  }
  RecordProperty("received", std::to_string(sum.received));
  RecordProperty("failed", std::to_string(sum.failed));
  EXPECT_GT(sum.received, sum.failed);
}

TEST(PdSimulation, SeedDecidesARunWhole) {
  WorldOptions options = OptionsOf(7);
  const WorldReport first = RunWorld(options);
  const WorldReport second = RunWorld(options);
  EXPECT_EQ(first.digest, second.digest);
  options.seed += 3;
  EXPECT_NE(RunWorld(options).digest, first.digest);
}

class PdCanaryTest : public ::testing::TestWithParam<WorldCanary> {};

TEST_P(PdCanaryTest, IsFound) {
  for (int64_t seed = 1; seed <= 30; ++seed) {
    WorldOptions options = OptionsOf(seed);
    options.canary = GetParam();
    if (!RunWorld(options).violation.empty()) return;
  }
  FAIL() << "30 runs found nothing wrong";
}

INSTANTIATE_TEST_SUITE_P(Canaries, PdCanaryTest,
                         ::testing::Values(WorldCanary::kFreeWhenPrefilled, WorldCanary::kFreeWhenFailing,
                                           WorldCanary::kForgetFinished, WorldCanary::kScanAhead));

}  // namespace
}  // namespace tenure::pd
