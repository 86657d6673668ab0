// Large posts of the local transport, which several threads write: who helps, how they end, what waits beside them.
#include "tenure/transfer/local_parts.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/transfer/local_transport.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"

namespace tenure::transfer {
namespace {

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kPart = LocalTransport::kPartBytesMax;
constexpr int kParts = 16;
constexpr uint64_t kBytes = kParts * kPart;

class Gate {
 public:
  void Open() {
    const MutexLock lock(mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    const MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// Counts the transport's looks at the time, of which it takes one when a post begins and one before each part of it,
// and acts at some of them, on the thread that looks.
class ActingClock final : public Clock {
 public:
  MonotonicTime Now() const override {
    std::function<void()> action;
    {
      const MutexLock lock(mutex_);
      const auto found = actions_.find(++looks_);
      if (found != actions_.end()) action = found->second;
      changed_.SignalAll();
    }
    if (action) action();
    return time_.Now();
  }
  // Counting begins anew with the first.
  void At(const std::vector<int>& looks, const std::function<void()>& action) {
    const MutexLock lock(mutex_);
    if (actions_.empty()) looks_ = 0;
    for (const int look : looks) actions_[look] = action;
  }
  int looks() const {
    const MutexLock lock(mutex_);
    return looks_;
  }
  // CHECKs that they come within a minute.
  void WaitForLooks(int count) const {
    const MonotonicClock clock;
    const MonotonicTime end = clock.Now() + absl::Minutes(1);
    const MutexLock lock(mutex_);
    while (looks_ < count) {
      TENURE_CHECK(clock.Now() < end);
      changed_.WaitFor(mutex_, absl::Seconds(1));
    }
  }
  void Advance(absl::Duration by) { time_.Advance(by); }
  MonotonicTime Later(absl::Duration by) const { return time_.Now() + by; }

 private:
  ManualClock time_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int looks_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, std::function<void()>> actions_ ABSL_GUARDED_BY(mutex_);
};

class SplitPost : public ::testing::Test {
 protected:
  SplitPost() { EXPECT_TRUE(transport_->Register(source_.range()).ok()); }
  PostedWrite Post(uint64_t offset, uint64_t size) {
    PostedWrite write;
    transport_->Post(peer_.address(), {{source_.address() + offset, peer_.base() + offset, size}},
                     clock_.Later(absl::Minutes(1)), write.Done());
    return write;
  }

  ActingClock clock_;
  const TestMemory source_ = TestMemory(kBytes, kSeed);
  PeerProcess peer_ = PeerProcess("local", kBytes);
  std::unique_ptr<LocalTransport> transport_ = LocalTransport::Create({.threads = 2}, clock_).value();
};

TEST_F(SplitPost, IdleThreadHelpsAndTheAnswerWaitsForBoth) {
  Gate gate;
  clock_.At({2}, [&] { gate.Wait(); });
  const PostedWrite write = Post(0, kBytes);
  clock_.WaitForLooks(1 + kParts);  // The other thread has come to the last part.
  EXPECT_FALSE(write.done());
  gate.Open();
  const WriteResult result = write.Wait();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(clock_.looks(), 1 + kParts);
  EXPECT_EQ(peer_.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(SplitPost, PeerKilledInTheMiddleEndsBothHalves) {
  Gate killed;
  clock_.At({6}, [&] {
    peer_.Kill();
    killed.Open();
  });
  clock_.At({7}, [&] { killed.Wait(); });
  const WriteResult result = Post(0, kBytes).Wait();
  EXPECT_TRUE(absl::IsUnavailable(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_LE(clock_.looks(), 7);  // The other thread may have begun one more part.
}

TEST_F(SplitPost, DeadlineInTheMiddleEndsBothHalves) {
  Gate late;
  clock_.At({6}, [&] {
    clock_.Advance(absl::Minutes(2));
    late.Open();
  });
  clock_.At({7}, [&] { late.Wait(); });
  const WriteResult result = Post(0, kBytes).Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_LE(clock_.looks(), 7);
}

TEST_F(SplitPost, FailureOfOneHalfIsAnsweredWhenTheOtherHasStopped) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto address = reinterpret_cast<uint64_t>(memory);
  ASSERT_TRUE(transport_->Register({{address, kBytes}}).ok());
  const uint64_t kept = kBytes / 2 + 4096;  // The ninth part is written in part.
  ASSERT_EQ(munmap(static_cast<char*>(memory) + kept, kBytes - kept), 0);
  Gate gate;
  clock_.At({2}, [&] { gate.Wait(); });
  const PostedWrite write;
  transport_->Post(peer_.address(), {{address, peer_.base(), kBytes}}, clock_.Later(absl::Minutes(1)), write.Done());
  clock_.WaitForLooks(11);  // The post, the held part, seven more, and the ninth in two calls.
  EXPECT_FALSE(write.done());
  gate.Open();
  const WriteResult result = write.Wait();
  EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
  EXPECT_TRUE(result.settled);
  EXPECT_LE(clock_.looks(), 13);
  EXPECT_TRUE(Post(0, kBytes).Wait().status.ok());
  munmap(memory, kept);
}

TEST_F(SplitPost, HelperLeavesALargePostForSmallOnesBetweenTwoParts) {
  constexpr int kSmall = 20;
  Gate owners;
  Gate helpers;
  std::thread::id owner;
  clock_.At({1}, [&] { owner = std::this_thread::get_id(); });
  clock_.At({2, 3}, [&] { (std::this_thread::get_id() == owner ? owners : helpers).Wait(); });
  const PostedWrite large = Post(0, kBytes);
  clock_.WaitForLooks(3);
  std::vector<PostedWrite> small(kSmall);
  int looks = 0;
  for (const PostedWrite& write : small) {
    transport_->Post(peer_.address(), {{source_.address(), peer_.base(), 64}}, clock_.Later(absl::Minutes(1)),
                     [&looks, this, done = write.Done()](WriteResult result) {
                       looks = clock_.looks();
                       done(std::move(result));
                     });
  }
  helpers.Open();
  for (const PostedWrite& write : small) EXPECT_TRUE(write.Wait().status.ok());
  EXPECT_FALSE(large.done());
  EXPECT_EQ(looks, 3 + 2 * kSmall);  // No part of the large post between.
  owners.Open();
  EXPECT_TRUE(large.Wait().status.ok());
  EXPECT_EQ(peer_.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

TEST_F(SplitPost, DestructorInTheMiddleAnswersEveryPostAndLeavesNoThreadWriting) {
  Gate gate;
  clock_.At({6}, [&] { gate.Wait(); });
  std::vector<PostedWrite> writes;
  for (int i = 0; i < 10; ++i) writes.push_back(Post(0, kBytes));
  clock_.WaitForLooks(6);
  gate.Open();
  transport_.reset();
  for (const PostedWrite& write : writes) {
    ASSERT_TRUE(write.done());
    const WriteResult result = write.Wait();
    EXPECT_TRUE(result.status.ok() || absl::IsUnavailable(result.status)) << result.status;
    EXPECT_TRUE(result.settled);
  }
}

TEST_F(SplitPost, PostsOfAllSizesBesideOneAnotherArriveWhole) {
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  const auto three = LocalTransport::Create({.threads = 3}, clock_).value();
  ASSERT_TRUE(three->Register(source_.range()).ok());
  std::vector<PostedWrite> writes;
  for (uint64_t offset = 0; offset < kBytes;) {
    const uint64_t most = random.Chance(0.2) ? 5 * kPart : 50'000;
    const uint64_t size = std::min(1 + random.Below(most), kBytes - offset);
    std::vector<pd::WritePiece> pieces;
    for (uint64_t at = offset; at < offset + size;) {
      const uint64_t bytes = std::min(1 + random.Below(size), offset + size - at);
      pieces.push_back({source_.address() + at, peer_.base() + at, bytes});
      at += bytes;
    }
    std::reverse(pieces.begin(), pieces.end());  // None merges with its neighbour.
    three->Post(peer_.address(), pieces, clock_.Later(absl::Minutes(1)), writes.emplace_back().Done());
    offset += size;
  }
  for (const PostedWrite& write : writes) EXPECT_TRUE(write.Wait().status.ok());
  EXPECT_EQ(peer_.ChecksumOf(0, kBytes), source_.ChecksumOf(0, kBytes));
}

}  // namespace
}  // namespace tenure::transfer
