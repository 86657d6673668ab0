#include "tenure/engine/pinned_jobs.h"

#include <gtest/gtest.h>

#include "tenure/kv/specs_testing.h"

namespace tenure::engine {
namespace {

using Blocks = std::vector<BlockId>;

TEST(PinnedJobsTest, BlocksAreFreedByTheLastWorker) {
  PinnedJobs jobs(3);
  const uint64_t job = jobs.NewJob();
  jobs.Pin(job, {4, 5});
  EXPECT_EQ(jobs.Complete(job, 1), Blocks());
  EXPECT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs.Complete(job, 2), (Blocks{4, 5}));
  EXPECT_EQ(jobs.size(), 0u);
}

TEST(PinnedJobsTest, TooManyReportsFreeOnceAndUnknownJobsNothing) {
  PinnedJobs jobs(2);
  const uint64_t job = jobs.NewJob();
  jobs.Pin(job, {4});
  EXPECT_EQ(jobs.Complete(job, 5), Blocks{4});
  EXPECT_EQ(jobs.Complete(job, 1), Blocks());
  EXPECT_EQ(jobs.Complete(job + 100, 1), Blocks());
}

TEST(PinnedJobsTest, JobsWithoutBlocksAreNotWaitedFor) {
  PinnedJobs jobs(1);
  const uint64_t job = jobs.NewJob();
  jobs.Pin(job, {});
  EXPECT_EQ(jobs.size(), 0u);
  EXPECT_NE(jobs.NewJob(), job);
}

TEST(PinnedJobsTest, PinsBoundaryBlocksThenAllBlocksButThoseOfStates) {
  using kv::testing::Full;
  const kv::CacheConfig config = kv::testing::Config(16, 16, false, {Full(16), kv::testing::State(16)});
  SaveOrder order;
  order.length = Tokens(32);
  order.blocks = {{7, 0, 8}, {21, 22}};
  order.boundary_puts = {{kv::GroupIndex(1), 22, Tokens(32)}, {kv::GroupIndex(0), 8, Tokens(48)}};
  EXPECT_EQ(BlocksToPin(config, order), (Blocks{22, 8, 7}));
  order.length = Tokens();
  EXPECT_EQ(BlocksToPin(config, order), (Blocks{22, 8}));
}

}  // namespace
}  // namespace tenure::engine
