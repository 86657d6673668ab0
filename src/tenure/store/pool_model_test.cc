// The embedded pool against its model: random operations and virtual time in both modes, with one shard and several,
// one size and several, tiny pools, with bytes and without.
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/store/pool_driver_testing.h"

namespace tenure::store {
namespace {

struct Shape {
  std::string name;
  PoolMode mode = PoolMode::kClosed;
  MemoryKind memory = MemoryKind::kMapped;
  int shards = 1;
  int64_t slabs = 4;
  std::vector<int64_t> sizes = {1024};
  int keys = 48;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

class PoolModelTest : public ::testing::TestWithParam<Shape> {
 protected:
  PoolDriver::Setup MakeSetup() const {
    const Shape& shape = GetParam();
    PoolDriver::Setup setup;
    setup.options.slab_bytes = Bytes(4096);
    setup.options.capacity = Bytes(4096 * shape.slabs);
    setup.options.mode = shape.mode;
    setup.options.memory = shape.memory;
    setup.options.shards = shape.shards;
    setup.options.waiting_share_max = 0.3;
    setup.options.waiting_ttl = absl::Seconds(2);
    setup.options.pass_step_objects_max = 3;
    setup.sizes = shape.sizes;
    setup.keys = shape.keys;
    return setup;
  }
};

std::vector<Shape> Shapes() {
  const std::vector<int64_t> mixed = {256, 1000, 1365, 4096, 5000};
  std::vector<Shape> shapes;
  for (const PoolMode mode : {PoolMode::kClosed, PoolMode::kIndependent}) {
    const std::string name = mode == PoolMode::kClosed ? "Closed" : "Independent";
    shapes.push_back({.name = name + "OneSlab", .mode = mode, .shards = 1, .slabs = 1, .keys = 12});
    shapes.push_back({.name = name + "OneSize", .mode = mode, .shards = 4, .slabs = 3});
    shapes.push_back({.name = name + "Recut", .mode = mode, .shards = 4, .slabs = 6, .sizes = mixed, .keys = 64});
    shapes.push_back({.name = name + "RecutOneShard", .mode = mode, .shards = 1, .slabs = 2, .sizes = mixed});
    shapes.push_back({.name = name + "Virtual",
                      .mode = mode,
                      .memory = MemoryKind::kVirtual,
                      .shards = 16,
                      .slabs = 3,
                      .sizes = {1024, 2048}});
  }
  return shapes;
}
INSTANTIATE_TEST_SUITE_P(Shapes, PoolModelTest, ::testing::ValuesIn(Shapes()),
                         [](const ::testing::TestParamInfo<Shape>& shape) { return shape.param.name; });

TEST_P(PoolModelTest, AnswersAndKeepsWhatTheModelSays) {
  const int64_t runs = RandomCases(100);
  constexpr int kSteps = 1'000;
  PoolModel::Coverage seen;
  int64_t refused_full = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(runs); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    PoolDriver driver(MakeSetup(), [&random](uint64_t bound) { return random.Below(bound); });
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_EQ(driver.Step(), "") << "step " << step << " after\n" << driver.History();
    }
    ASSERT_EQ(driver.Finish(), "") << driver.History();
    seen.evicted += driver.coverage().evicted;
    seen.evicted_parents += driver.coverage().evicted_parents;
    seen.shown_after_waiting += driver.coverage().shown_after_waiting;
    seen.dropped_waiting += driver.coverage().dropped_waiting;
    refused_full += driver.stats().refused_full_total;
    seen.removed_while_pinned += driver.coverage().removed_while_pinned;
    seen.orders_checked += driver.coverage().orders_checked;
  }
  RecordProperty("evicted", std::to_string(seen.evicted));
  RecordProperty("refused_full", std::to_string(refused_full));
  EXPECT_GT(seen.evicted, runs);
  EXPECT_GT(refused_full, 0);
  EXPECT_GT(seen.removed_while_pinned, 0);
  EXPECT_EQ(seen.orders_checked > 0, GetParam().sizes.size() == 1);
  if (GetParam().mode != PoolMode::kClosed) return;
  EXPECT_GT(seen.evicted_parents, 0);
  EXPECT_GT(seen.shown_after_waiting, 0);
  EXPECT_GT(seen.dropped_waiting, 0);
}

}  // namespace
}  // namespace tenure::store
