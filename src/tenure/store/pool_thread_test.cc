// Eight threads on one embedded pool: whatever they do to each other, a read gives the bytes of its key or a miss, and
// afterwards nothing is held. Under the thread sanitizer this is the test for races.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tenure/base/clock.h"
#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/store/copy_digest.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::store {
namespace {

constexpr int kThreads = 8;
constexpr uint64_t kKeys = 400;
constexpr size_t kObjectWords = 256;

struct Tally {
  std::atomic<int64_t> read{0};
  std::atomic<int64_t> missed{0};
  std::atomic<int64_t> stored{0};
  std::atomic<int64_t> wrong{0};  // Bytes of another key, or of two puts.
};

class PoolThreadTest : public ::testing::TestWithParam<PoolMode> {
 protected:
  void SetUp() override {
    EmbeddedPoolOptions options;
    options.mode = GetParam();
    options.slab_bytes = Bytes(64 << 10);
    options.capacity = Bytes(256 << 10);  // 128 objects of 2 KiB.
    options.shards = 4;
    options.waiting_ttl = absl::Milliseconds(50);
    pool_ = EmbeddedPool::Create(options, clock_).value();
    const NamespaceId space = pool_->OpenNamespace("threads").value();
    for (uint64_t i = 0; i < kKeys; ++i) {
      const std::array<uint64_t, 2> words = {Random::Mix(i + 1), Random::Mix(i + 1001)};
      std::array<uint8_t, sizeof words> bytes{};
      std::memcpy(bytes.data(), words.data(), sizeof words);
      keys_.push_back({.name_space = space, .hash = kv::BlockHash::FromTrusted(bytes)});
    }
  }

  // Words that say which key and which put they are of; a third of the objects is half as long.
  static std::vector<uint64_t> Words(uint64_t key, uint64_t put) {
    std::vector<uint64_t> words(key % 3 == 0 ? kObjectWords / 2 : kObjectWords);
    for (uint64_t& word : words) word = key << 48 | put;
    return words;
  }
  static bool AreOf(const std::vector<uint64_t>& words, uint64_t key) {
    for (const uint64_t word : words) {
      if (word != words[0] || word >> 48 != key) return false;
    }
    return true;
  }

  std::optional<ObjectKey> ParentOf(uint64_t key) const {
    if (key % 10 == 0) return std::nullopt;
    return keys_[key - 1];
  }

  void PutOne(uint64_t key, uint64_t put) {
    const std::vector<uint64_t> words = Words(key, put);
    const std::array<ConstSegment, 1> segments = {
        {{.data = std::as_bytes(std::span(words)).data(), .size = words.size() * 8}}};
    const std::array<PutObject, 1> objects = {{{.key = keys_[key], .segments = segments, .parent = ParentOf(key)}}};
    std::array<PutAnswer, 1> answers{};
    if (!pool_->Put(objects, answers).ok()) ++tally_.wrong;
    tally_.stored += answers[0] == PutAnswer::kStored;
  }

  void ReserveOne(uint64_t key, uint64_t put, bool commit) {
    const std::vector<uint64_t> words = Words(key, put);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(words));
    const std::array<ConstSegment, 1> segments = {{{.data = bytes.data(), .size = bytes.size()}}};
    const std::array<PutObject, 1> objects = {{{.key = keys_[key], .segments = segments, .parent = ParentOf(key)}}};
    std::array<PutAnswer, 1> answers{};
    std::vector<Reservation> reservations = pool_->Reserve(objects, answers).value();
    if (!reservations[0].valid()) return;
    std::memcpy(reservations[0].memory().address, bytes.data(), bytes.size());
    if (commit) pool_->Commit(std::move(reservations[0]), Digest(pool_->DigestSeedOf(keys_[key]), bytes));
  }

  void GetOne(uint64_t key) {
    std::vector<uint64_t> words = Words(key, 0);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(words));
    const std::array<Segment, 1> segments = {{{.data = bytes.data(), .size = bytes.size()}}};
    const std::array<GetObject, 1> objects = {{{.key = keys_[key], .segments = segments}}};
    std::array<KeyAnswer, 1> answers{};
    if (!pool_->Get(objects, answers).ok()) ++tally_.wrong;
    if (answers[0] == KeyAnswer::kPresent) {
      ++tally_.read;
      tally_.wrong += !AreOf(words, key);
    } else {
      ++tally_.missed;
      tally_.wrong += answers[0] != KeyAnswer::kAbsent;
    }
  }

  void PinOne(uint64_t key) {
    std::array<KeyAnswer, 1> answers{};
    std::vector<PinnedObject> pins = pool_->Pin(std::array{keys_[key]}, answers).value();
    if (answers[0] != KeyAnswer::kPresent) return;
    std::vector<uint64_t> words(static_cast<size_t>(pins[0].memory().size.value()) / 8);
    std::memcpy(words.data(), pins[0].memory().address, words.size() * 8);
    tally_.wrong += !AreOf(words, key);
  }

  // A leased object that was present stays so until its release, unless somebody removes keys.
  void LeaseOne(uint64_t key) {
    const std::vector<ObjectKey> batch = {keys_[key], keys_[(key * 7) % kKeys], keys_[(key * 13) % kKeys]};
    std::vector<KeyAnswer> leased(batch.size());
    std::vector<KeyAnswer> probed(batch.size());
    const Lease lease = pool_->AcquireLease(batch, absl::Hours(1), leased).value();
    if (!pool_->Probe(batch, probed).ok()) ++tally_.wrong;
    for (size_t i = 0; i < batch.size() && !removing_; ++i) {
      tally_.wrong += leased[i] == KeyAnswer::kPresent && probed[i] != KeyAnswer::kPresent;
    }
  }

  void Work(uint64_t seed, int64_t steps) {
    Random random(seed);
    for (int64_t step = 0; step < steps; ++step) {
      const uint64_t key = random.Below(kKeys);
      const uint64_t put = seed << 32 | static_cast<uint64_t>(step);
      const uint64_t choice = random.Below(100);
      if (choice < 35) {
        PutOne(key, put);
      } else if (choice < 60) {
        GetOne(key);
      } else if (choice < 72) {
        LeaseOne(key);
      } else if (choice < 82) {
        ReserveOne(key, put, random.Chance(0.7));
      } else if (choice < 90) {
        PinOne(key);
      } else if (choice < 95) {
        clock_.Advance(absl::Milliseconds(random.Below(20)));
      } else if (choice < 98) {
        pool_->Maintain();
      } else if (removing_ && choice < 99) {
        std::array<KeyAnswer, 1> answers{};
        if (!pool_->Remove(std::array{keys_[key]}, answers).ok()) ++tally_.wrong;
      } else if (removing_ && random.Chance(0.05)) {
        if (!pool_->Clear(std::nullopt).ok()) ++tally_.wrong;
      } else {
        if (pool_->Stats().used > pool_->Stats().capacity) ++tally_.wrong;
      }
    }
  }

  void RunThreads(uint64_t first_seed) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, seed = first_seed + i] { Work(seed, RandomCases(20'000)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void ExpectNothingHeld() {
    const PoolStats stats = pool_->Stats();
    EXPECT_EQ(stats.held.leased, 0);
    EXPECT_EQ(stats.held.pinned, 0);
    EXPECT_EQ(stats.held.writing, 0);
    EXPECT_EQ(stats.checksum_failures_total, 0);
    EXPECT_EQ(pool_->Clear(std::nullopt).value(), stats.objects);
    EXPECT_EQ(pool_->Stats().used, Bytes(0));
    EXPECT_EQ(pool_->Stats().objects, 0);
  }

  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
  std::vector<ObjectKey> keys_;
  bool removing_ = false;
  Tally tally_;
};

INSTANTIATE_TEST_SUITE_P(Modes, PoolThreadTest, ::testing::Values(PoolMode::kClosed, PoolMode::kIndependent),
                         [](const ::testing::TestParamInfo<PoolMode>& mode) {
                           return mode.param == PoolMode::kClosed ? "Closed" : "Independent";
                         });

TEST_P(PoolThreadTest, EightThreadsReadOnlyWhatWasPutAndLeasesHold) {
  RunThreads(1);
  EXPECT_EQ(tally_.wrong, 0);
  EXPECT_GT(tally_.read, RandomCases(1'000));
  EXPECT_GT(tally_.stored, RandomCases(1'000));
  EXPECT_GT(pool_->Stats().evicted_total, RandomCases(1'000));
  ExpectNothingHeld();
}

TEST_P(PoolThreadTest, EightThreadsWithRemovalsReadOnlyWhatWasPut) {
  removing_ = true;
  RunThreads(100);
  EXPECT_EQ(tally_.wrong, 0);
  EXPECT_GT(tally_.read, RandomCases(1'000));
  EXPECT_GT(pool_->Stats().removed_total, RandomCases(100));
  ExpectNothingHeld();
}

// Two writers of one key: one is the writer, the other is told so, and the reader never sees a mixture.
TEST_P(PoolThreadTest, WritersOfOneKeyDoNotMix) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] {
      for (uint64_t round = 0; round < static_cast<uint64_t>(RandomCases(2'000)); ++round) {
        PutOne(10, i << 32 | round);
        GetOne(10);
        std::array<KeyAnswer, 1> answers{};
        if (i == 0 && !pool_->Remove(std::array{keys_[10]}, answers).ok()) ++tally_.wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tally_.wrong, 0);
  EXPECT_GT(tally_.read, 0);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace tenure::store
