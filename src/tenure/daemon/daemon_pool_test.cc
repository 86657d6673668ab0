// The client of the daemon, with a daemon in this process. The contract itself is tested by tests/conformance.
#include "tenure/daemon/daemon_pool.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::ObjectKey;
using store::PutAnswer;
using ::testing::Each;
using ::testing::HasSubstr;

class DaemonPoolTest : public ::testing::Test {
 protected:
  void Start(const TestDaemonOptions& options = {}) {
    daemon_ = std::make_unique<TestDaemon>(path_, options, clock_);
    pool_ = Client();
    name_space_ = pool_->OpenNamespace("model@tp0").value();
  }
  std::unique_ptr<DaemonPool> Client() { return DaemonPool::Connect(Options(), clock_).value(); }
  DaemonPoolOptions Options() const {
    DaemonPoolOptions options;
    options.socket_path = path_;
    options.call_deadline = kTestPatience;
    options.backoff_min = absl::Milliseconds(1);
    options.backoff_max = absl::Milliseconds(10);
    return options;
  }
  ObjectKey Key(uint64_t number) const { return TestKey(name_space_, number); }

  const TempFolder folder_;
  const std::string path_ = folder_.File("pool.sock");
  ManualClock clock_;
  std::unique_ptr<TestDaemon> daemon_;
  std::unique_ptr<DaemonPool> pool_;
  store::NamespaceId name_space_;
};

TEST_F(DaemonPoolTest, SocketThatNobodyServesIsNamed) {
  const auto pool = DaemonPool::Connect(Options(), clock_);
  EXPECT_TRUE(absl::IsUnavailable(pool.status()));
  EXPECT_THAT(std::string(Message(pool.status())), HasSubstr(path_));
}

TEST_F(DaemonPoolTest, BadOptionsAreNamed) {
  DaemonPoolOptions options = Options();
  options.call_deadline = absl::ZeroDuration();
  EXPECT_THAT(std::string(Message(DaemonPool::Connect(options, clock_).status())), HasSubstr("call_deadline"));
  options = Options();
  options.backoff_max = absl::ZeroDuration();
  EXPECT_THAT(std::string(Message(DaemonPool::Connect(options, clock_).status())), HasSubstr("backoff_max"));
  options = Options();
  options.window_bytes = Bytes(0);
  EXPECT_THAT(std::string(Message(DaemonPool::Connect(options, clock_).status())), HasSubstr("window_bytes"));
  options = Options();
  options.socket_path = std::string(200, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(DaemonPool::Connect(options, clock_).status()));
}

TEST_F(DaemonPoolTest, TwoClientsShareObjectsThoughTheyNumberNamespacesDifferently) {
  Start();
  const std::unique_ptr<DaemonPool> other = Client();
  ASSERT_TRUE(other->OpenNamespace("something else").ok());
  const ObjectKey key = Key(1);
  ASSERT_EQ(PutOne(*pool_, key, 5000), PutAnswer::kStored);
  const ObjectKey same = TestKey(other->OpenNamespace("model@tp0").value(), 1);
  EXPECT_NE(same, key);
  EXPECT_EQ(GetOne(*other, same, 5000), KeyAnswer::kPresent);
}

TEST_F(DaemonPoolTest, CallsLargerThanAMessageAreSplit) {
  TestDaemonOptions options;
  options.slab_bytes = Bytes(64 << 10);
  Start(options);
  const size_t count = 3 * kMessageKeysMax + 7;
  std::vector<ObjectKey> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(Key(i));
  std::vector<PutAnswer> put = PutAll(*pool_, keys, /*size=*/16, /*chain=*/false);
  // The index has room for fewer objects than that; what was stored is found.
  const auto stored = std::count(put.begin(), put.end(), PutAnswer::kStored);
  EXPECT_GT(stored, 0);
  std::vector<KeyAnswer> answers(count);
  ASSERT_TRUE(pool_->Probe(keys, answers).ok());
  int64_t present = 0;
  for (size_t i = 0; i < count; ++i) present += answers[i] == KeyAnswer::kPresent;
  EXPECT_EQ(present, daemon_->pool().Stats().objects);
  store::Lease lease = pool_->AcquireLease(keys, absl::Seconds(10), answers).value();
  EXPECT_EQ(static_cast<int64_t>(lease.size()), present);
  EXPECT_EQ(daemon_->pool().Stats().held.leased, present);
  lease.Release();
  EXPECT_EQ(pool_->Stats().held.leased, 0);
  ASSERT_TRUE(pool_->Remove(keys, answers).ok());
  EXPECT_EQ(pool_->Stats().objects, 0);
}

// Children whose parent is in the same batch count as waiting while it is open, for which there is little room.
TEST_F(DaemonPoolTest, ChainInOneBatchIsStoredWhole) {
  Start();
  std::vector<ObjectKey> keys;
  for (uint64_t i = 0; i < 900; ++i) keys.push_back(Key(i));
  EXPECT_THAT(PutAll(*pool_, keys, /*size=*/4096, /*chain=*/true), Each(PutAnswer::kStored));
  EXPECT_EQ(daemon_->pool().Stats().objects, 900);
  EXPECT_EQ(daemon_->pool().Stats().held.waiting, 0);
}

TEST_F(DaemonPoolTest, EqualKeysInABatchAreOneObject) {
  Start();
  const std::vector<ObjectKey> keys = {Key(0), Key(1), Key(0), Key(0)};
  EXPECT_THAT(PutAll(*pool_, keys, 100, /*chain=*/false),
              ::testing::ElementsAre(PutAnswer::kStored, PutAnswer::kStored, PutAnswer::kExists, PutAnswer::kExists));
}

TEST_F(DaemonPoolTest, ObjectLargerThanTheWindowIsPutAndRead) {
  Start();
  DaemonPoolOptions options = Options();
  options.window_bytes = Bytes(1000);
  const auto small_window = DaemonPool::Connect(options, clock_).value();
  const ObjectKey key = TestKey(small_window->OpenNamespace("w").value(), 1);
  EXPECT_EQ(PutOne(*small_window, key, 100'000), PutAnswer::kStored);
  EXPECT_EQ(GetOne(*small_window, key, 100'000), KeyAnswer::kPresent);
  EXPECT_EQ(small_window->Stats().held.pinned, 0);
  EXPECT_EQ(daemon_->server().Stats().held_bytes.value(), 0);
}

TEST_F(DaemonPoolTest, BytesThatChangedAreAMissForEverybody) {
  Start();
  ASSERT_EQ(PutOne(*pool_, Key(1), 3000), PutAnswer::kStored);
  ASSERT_TRUE(daemon_->Corrupt(TestKey(store::NamespaceId(0), 1)));
  EXPECT_EQ(GetOne(*pool_, Key(1), 3000), KeyAnswer::kAbsent);
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 1);
  EXPECT_EQ(pool_->Stats().held.pinned, 0);
  EXPECT_EQ(PutOne(*pool_, Key(1), 3000), PutAnswer::kStored);
  EXPECT_EQ(GetOne(*pool_, Key(1), 3000), KeyAnswer::kPresent);
}

TEST_F(DaemonPoolTest, CallsAreMissesWhileTheDaemonIsAwayAndWorkWhenItIsBack) {
  Start();
  ASSERT_EQ(PutOne(*pool_, Key(1), 100), PutAnswer::kStored);
  std::array<KeyAnswer, 1> answers{};
  store::Lease lease = pool_->AcquireLease(std::array{Key(1)}, absl::Seconds(5), answers).value();
  daemon_.reset();
  ASSERT_TRUE(Eventually([&] { return !pool_->connected(); }));
  EXPECT_TRUE(absl::IsUnavailable(pool_->Probe(std::array{Key(1)}, answers)));
  EXPECT_EQ(answers[0], KeyAnswer::kUnavailable);
  EXPECT_EQ(PutOne(*pool_, Key(2), 100), PutAnswer::kNotStored);
  EXPECT_EQ(GetOne(*pool_, Key(1), 100), KeyAnswer::kUnavailable);
  EXPECT_EQ(pool_->Stats().stored_total, 0) << "never asked, so the last figures are none";
  EXPECT_TRUE(pool_->OpenNamespace("new while away").ok());

  daemon_ = std::make_unique<TestDaemon>(path_, TestDaemonOptions(), clock_);
  ASSERT_TRUE(Eventually([&] { return pool_->connected(); }));
  ASSERT_TRUE(pool_->Probe(std::array{Key(1)}, answers).ok());
  EXPECT_EQ(answers[0], KeyAnswer::kAbsent) << "a restart is a cold pool";
  ASSERT_EQ(PutOne(*pool_, Key(1), 100), PutAnswer::kStored);
  const store::Lease newer = pool_->AcquireLease(std::array{Key(1)}, absl::Seconds(5), answers).value();
  lease.Release();
  EXPECT_EQ(pool_->Stats().held.leased, 1) << "a handle of the old daemon ended a lease of the new one";
}

TEST_F(DaemonPoolTest, DaemonThatComesBackInAnotherModeIsNotUsed) {
  Start();
  daemon_.reset();
  TestDaemonOptions options;
  options.mode = store::PoolMode::kIndependent;
  daemon_ = std::make_unique<TestDaemon>(path_, options, clock_);
  ASSERT_TRUE(Eventually([&] { return daemon_->server().Stats().clients_total > 0; }));
  EXPECT_FALSE(pool_->connected());
}

TEST_F(DaemonPoolTest, BadInputChangesNothing) {
  Start();
  std::array<KeyAnswer, 2> answers{};
  EXPECT_TRUE(absl::IsInvalidArgument(pool_->Probe(std::array{Key(1)}, answers)));
  const ObjectKey foreign = TestKey(store::NamespaceId(77), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(pool_->Probe(std::array{Key(1), foreign}, answers)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(pool_->AcquireLease(std::array{Key(1), Key(2)}, absl::Hours(25), answers).status()));
  const std::array<store::ConstSegment, 1> no_data = {{{.data = nullptr, .size = 5}}};
  const std::array<store::PutObject, 1> put = {{{.key = Key(1), .segments = no_data, .parent = std::nullopt}}};
  std::array<PutAnswer, 1> put_answers{};
  EXPECT_TRUE(absl::IsInvalidArgument(pool_->Put(put, put_answers)));
  EXPECT_EQ(pool_->Stats().stored_total, 0);
}

TEST_F(DaemonPoolTest, ThreadsShareOneConnectionAndReadOnlyTheirKeysBytes) {
  Start();
  constexpr int kThreads = 8;
  std::atomic<int64_t> present{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<uint64_t>(t) + 1);
      for (int i = 0; i < 100; ++i) {
        // Few keys, so that threads meet on them, and more bytes than the pool has.
        const ObjectKey key = Key(random.Below(40));
        PutOne(*pool_, key, 300'000);
        present += GetOne(*pool_, key, 300'000) == KeyAnswer::kPresent;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(present.load(), 0);
  EXPECT_EQ(pool_->Stats().held.writing, 0);
  EXPECT_EQ(pool_->Stats().held.pinned, 0);
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 0);
}

}  // namespace
}  // namespace tenure::daemon
