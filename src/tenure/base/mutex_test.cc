#include "tenure/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tenure {
namespace {

class Counter {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++value_;
    changed_.SignalAll();
  }
  void WaitFor(int value) {
    const MutexLock lock(mutex_);
    while (value_ < value) changed_.Wait(mutex_);
  }
  int Value() {
    const MutexLock lock(mutex_);
    return value_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int n = 0; n < 2'000; ++n) counter.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Value(), 8'000);
}

TEST(CondVar, WakesAWaiterAndLeavesTheMutexUsable) {
  Counter counter;
  std::thread waiter([&counter] {
    counter.WaitFor(3);
    counter.Add();
  });
  for (int i = 0; i < 3; ++i) counter.Add();
  waiter.join();
  EXPECT_EQ(counter.Value(), 4);
}

}  // namespace
}  // namespace tenure
