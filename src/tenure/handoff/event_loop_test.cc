#include "tenure/handoff/event_loop.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/handoff/recorder_testing.h"

namespace tenure::handoff {
namespace {

TEST(EventLoop, TasksRunInTheirOrder) {
  const MonotonicClock clock;
  Recorder<int> ran;
  EventLoop loop(clock, 10);
  loop.Post([&] { ran.Add(1); });
  loop.Start([](MonotonicTime) { return MonotonicTime::Max(); });
  loop.Post([&] {
    ran.Add(2);
    loop.Post([&] { ran.Add(3); });
  });
  EXPECT_THAT(ran.WaitFor(3), ::testing::ElementsAre(1, 2, 3));
}

TEST(EventLoop, WhatIsDueIsDoneWithoutATask) {
  const MonotonicClock clock;
  Recorder<MonotonicTime> looked;
  EventLoop loop(clock, 10);
  loop.Start([&](MonotonicTime now) {
    looked.Add(now);
    return now + absl::Milliseconds(10);
  });
  const auto times = looked.WaitFor(5);
  ASSERT_GE(times.size(), 5u);
  for (size_t i = 1; i < times.size(); ++i) EXPECT_GT(times[i], times[i - 1]);
}

TEST(EventLoop, TooManyTasksAreRefusedButTheOwnersAreNot) {
  const ManualClock clock;
  Recorder<int> ran;
  EventLoop loop(clock, 2);
  EXPECT_TRUE(loop.TryPost([&] { ran.Add(1); }));
  EXPECT_TRUE(loop.TryPost([&] { ran.Add(2); }));
  EXPECT_FALSE(loop.TryPost([&] { ran.Add(99); }));
  loop.Post([&] { ran.Add(3); });
  loop.Start([](MonotonicTime) { return MonotonicTime::Max(); });
  EXPECT_THAT(ran.WaitFor(3), ::testing::ElementsAre(1, 2, 3));
}

TEST(EventLoop, NothingRunsOnceItHasStopped) {
  const MonotonicClock clock;
  Recorder<int> ran;
  EventLoop loop(clock, 10);
  loop.Start([](MonotonicTime) { return MonotonicTime::Max(); });
  loop.Post([&] { ran.Add(1); });
  ran.WaitFor(1);
  loop.Stop();
  loop.Post([&] { ran.Add(2); });
  EXPECT_FALSE(loop.TryPost([&] { ran.Add(3); }));
  loop.Stop();
  EXPECT_THAT(ran.items(), ::testing::ElementsAre(1));
}

}  // namespace
}  // namespace tenure::handoff
