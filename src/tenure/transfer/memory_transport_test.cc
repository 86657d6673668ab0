// The faults that tests of P/D ask for happen as they are described.
#include <gtest/gtest.h>

#include "tenure/transfer/memory_transport_testing.h"
#include "tenure/transfer/transport_rig_testing.h"

namespace tenure::transfer {
namespace {

class MemoryTransportTest : public ::testing::Test {
 protected:
  MemoryTransportTest() {
    EXPECT_TRUE(prefill_->Register(source_.range()).ok());
    EXPECT_TRUE(decode_.Register(target_.range()).ok());
  }
  PostedWrite Post(MemoryFault fault) {
    prefill_->SetFault(fault);
    PostedWrite write;
    prefill_->Post(decode_.Address(),
                   {{source_.address(), target_.address(), 10}, {source_.address(), target_.address() + 20, 10}},
                   clock_.Now() + absl::Seconds(5), write.Done());
    return write;
  }
  bool landed(size_t offset) const {
    return std::equal(source_.bytes().begin(), source_.bytes().begin() + 10,
                      target_.bytes().begin() + static_cast<int64_t>(offset));
  }

  ManualClock clock_;
  MemoryNetwork network_;
  const TestMemory source_ = TestMemory(100, 20261130);
  TestMemory target_ = TestMemory(100);
  std::unique_ptr<MemoryTransport> prefill_ = std::make_unique<MemoryTransport>(network_, clock_);
  MemoryTransport decode_{network_, clock_};
};

TEST_F(MemoryTransportTest, HeldWriteIsDoneWhenItIsReleased) {
  const PostedWrite write = Post(MemoryFault::kHold);
  EXPECT_EQ(prefill_->open(), 1u);
  EXPECT_FALSE(landed(0));
  prefill_->ReleaseHeld();
  EXPECT_TRUE(write.Wait().status.ok());
  EXPECT_TRUE(landed(0) && landed(20));
}

TEST_F(MemoryTransportTest, HeldWriteLandsAfterItsDeadline) {
  const PostedWrite write = Post(MemoryFault::kHold);
  clock_.Advance(absl::Seconds(5));
  const WriteResult result = write.Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status));
  EXPECT_FALSE(result.settled);
  EXPECT_FALSE(landed(0));
  prefill_->ReleaseHeld();
  EXPECT_TRUE(Post(MemoryFault::kNone).Wait().status.ok());
  EXPECT_TRUE(landed(0));
}

TEST_F(MemoryTransportTest, FailedWriteLandsInPart) {
  const WriteResult result = Post(MemoryFault::kFail).Wait();
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_TRUE(result.settled);
  EXPECT_TRUE(landed(0));
  EXPECT_FALSE(landed(20));
}

TEST_F(MemoryTransportTest, LostWriteEndsWithItsDeadline) {
  const PostedWrite write = Post(MemoryFault::kLose);
  EXPECT_FALSE(write.done());
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(absl::IsDeadlineExceeded(write.Wait().status));
  EXPECT_FALSE(landed(0));
}

TEST_F(MemoryTransportTest, SilentWriteIsAnsweredByTheEndOnly) {
  const PostedWrite write = Post(MemoryFault::kSilence);
  EXPECT_TRUE(Post(MemoryFault::kNone).Wait().status.ok());  // Posts are carried out in their order.
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(landed(0) && landed(20));
  EXPECT_FALSE(write.done());
  prefill_.reset();
  EXPECT_TRUE(absl::IsUnavailable(write.Wait().status));
}

}  // namespace
}  // namespace tenure::transfer
