#include "tenure/store/lease_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::store {
namespace {

MonotonicTime At(int64_t nanoseconds) { return MonotonicTime::FromNanoseconds(nanoseconds); }

TEST(LeaseCount, ObjectIsCountedUntilItsDeadline) {
  LeaseCount count;
  count.Move(INT64_MIN, 10);
  count.Move(INT64_MIN, 10);
  count.Move(INT64_MIN, 20);
  count.Settle();
  count.PassTo(At(9));
  EXPECT_EQ(count.leased(), 3);
  count.PassTo(At(10));
  EXPECT_EQ(count.leased(), 1);
  count.PassTo(At(20));
  EXPECT_EQ(count.leased(), 0);
  EXPECT_EQ(count.bytes(), 0u);
}

TEST(LeaseCount, EarlierTimeThanTheLatestChangesNothing) {
  LeaseCount count;
  count.Move(INT64_MIN, 10);
  count.Settle();
  count.PassTo(At(15));
  count.PassTo(At(5));
  count.Move(10, 12);  // By a call that read the clock before.
  count.Settle();
  EXPECT_EQ(count.leased(), 0);
  count.Move(12, 30);
  count.Settle();
  EXPECT_EQ(count.leased(), 1);
}

TEST(LeaseCount, AgreesWithALookAtEveryObject) {
  const uint64_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  LeaseCount count;
  std::vector<int64_t> deadlines(100, INT64_MIN);
  int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    now += static_cast<int64_t>(random.Below(3));
    const int64_t until = now + static_cast<int64_t>(random.Below(50));
    for (uint64_t moved = random.Below(8); moved > 0; --moved) {
      int64_t& deadline = deadlines[random.Below(deadlines.size())];
      const int64_t after = random.Chance(0.2) ? INT64_MIN : std::max(deadline, until);
      count.Move(deadline, after);
      deadline = after;
    }
    count.Settle();
    count.PassTo(At(now));
    ASSERT_EQ(count.leased(), std::count_if(deadlines.begin(), deadlines.end(), [now](int64_t at) { return at > now; }))
        << "step " << step;
  }
}

}  // namespace
}  // namespace tenure::store
