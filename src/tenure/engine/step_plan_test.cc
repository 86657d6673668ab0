#include "tenure/engine/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/kv/random_hashes_testing.h"

namespace tenure::engine {
namespace {

using ::testing::HasSubstr;

StepPlan Example() {
  const std::vector<kv::BlockHash> hashes = kv::RandomHashes(3);
  StepPlan plan;
  plan.loads.push_back({.request = "load",
                        .local = Tokens(16),
                        .length = Tokens(48),
                        .chunks = {{kv::GroupIndex(0), 7, hashes[1]}, {kv::GroupIndex(1), 9, hashes[2]}}});
  plan.loads.push_back(plan.loads.front());
  plan.loads.back().refused = true;
  SaveOrder save;
  save.job = uint64_t{1} << 40;
  save.request = "save";
  save.length = Tokens(32);
  save.prefill_end = Tokens(45);
  save.first_hash = 2;
  save.hashes = hashes;
  save.blocks = {{1, 2, 0}, {}, {5}};
  save.boundary_puts = {{kv::GroupIndex(2), 5, Tokens(44)}};
  save.tokens = {Tokens(16), {-1, 5, INT32_MAX}};
  plan.saves = {save, SaveOrder()};
  plan.preempted = {"p", ""};
  plan.finished = {std::string(kRequestIdBytesMax, 'x')};
  return plan;
}

TEST(StepPlanTest, PlanComesBackAsItWas) {
  for (const StepPlan& plan : {Example(), StepPlan()}) {
    const auto read = DecodeStepPlan(EncodeStepPlan(plan));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, plan);
  }
}

TEST(StepPlanTest, EveryShorterOrLongerPlanIsRefused) {
  const std::string bytes = EncodeStepPlan(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto read = DecodeStepPlan(std::string_view(bytes).substr(0, size));
    ASSERT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
  EXPECT_THAT(Message(DecodeStepPlan(bytes + "x").status()), HasSubstr("no step plan"));
}

TEST(StepPlanTest, AnotherFormatIsNamed) {
  std::string bytes = EncodeStepPlan(Example());
  bytes[0] = 9;
  EXPECT_THAT(Message(DecodeStepPlan(bytes).status()), HasSubstr("format 9; this release reads 2"));
}

TEST(StepPlanTest, ChangedBytesNeverReadAsSomethingElseThanTheySay) {
  const uint64_t seed = 20261129;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Random random(seed);
  const std::string bytes = EncodeStepPlan(Example());
  int read_again = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string changed = bytes;
    for (uint64_t flips = random.Below(3) + 1; flips > 0; --flips) {
      changed[random.Below(changed.size())] = static_cast<char>(random.Below(256));
    }
    const auto read = DecodeStepPlan(changed);
    if (!read.ok()) continue;
    ++read_again;
    ASSERT_EQ(EncodeStepPlan(*read), changed);
  }
  EXPECT_GT(read_again, 0);
}

TEST(StepPlanTest, CountsBeyondTheBytesTakeNoMemory) {
  // Four bytes that ask for 4 billion loads.
  EXPECT_FALSE(DecodeStepPlan(std::string("\x01\xff\xff\xff\xff", 5)).ok());
}

}  // namespace
}  // namespace tenure::engine
