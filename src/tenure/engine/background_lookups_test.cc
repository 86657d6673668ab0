// Lookups in the background: without threads against a pool that fails at will, with threads against one that hangs.
#include "tenure/engine/background_lookups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tenure/base/status.h"
#include "tenure/connector/prompt_pool_testing.h"
#include "tenure/kv/random_hashes_testing.h"
#include "tenure/kv/specs_testing.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::engine {
namespace {

using connector::SpanHashSource;
using connector::testing::PromptPool;
using kv::testing::Config;
using kv::testing::Full;
using kv::testing::State;
using store::FakePool;
using ::testing::HasSubstr;
using Answer = LookupAnswers::Answer;

const kv::CacheConfig& Model() {
  static const kv::CacheConfig config = Config(16, 16, false, {Full(16), State(16)});
  return config;
}

BackgroundLookupOptions WithoutThreads() {
  BackgroundLookupOptions options;
  options.threads = 0;
  return options;
}

// Six chunks, all there, on two ranks a group.
class BackgroundLookupsTest : public ::testing::TestWithParam<bool> {
 protected:
  BackgroundLookupsTest() : prompt_(Model(), 6, {2, 2}, GetParam()) {
    prompt_.Insert({.groups = {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}});
  }

  std::unique_ptr<BackgroundLookups> Make(const BackgroundLookupOptions& options) {
    auto lookups = BackgroundLookups::Create(Model(), prompt_.pool(), prompt_.namespaces(), options, prompt_.clock());
    EXPECT_TRUE(lookups.ok()) << lookups.status();
    return *std::move(lookups);
  }
  int64_t Ask(const std::string& request, int64_t tokens = 100) {
    const std::shared_ptr<const connector::HashSource> all(std::shared_ptr<void>(), &prompt_.hashes());
    const Answer answer = lookups_->Ask(request, {all, Tokens(tokens)});
    return answer == nullptr ? -1 : answer->length.value();
  }
  void Run() {
    while (lookups_->RunPending()) continue;
  }
  bool AnyLeased() {
    const auto keys = prompt_.pool().Keys();
    return std::any_of(keys.begin(), keys.end(), [this](const auto& key) { return prompt_.pool().IsLeased(key); });
  }

  PromptPool prompt_;
  std::unique_ptr<BackgroundLookups> lookups_ = Make(WithoutThreads());
};
INSTANTIATE_TEST_SUITE_P(Pools, BackgroundLookupsTest, ::testing::Bool(),
                         [](const auto& pool) { return pool.param ? "Closed" : "Independent"; });

TEST_P(BackgroundLookupsTest, AnswersOnceAndKeepsTheLoadSetLeasedByRenewal) {
  EXPECT_EQ(Ask("a"), -1);
  Run();
  EXPECT_EQ(Ask("a"), 96);
  const kv::Hit hit{Tokens(96), {Tokens(96), Tokens(96)}};
  for (int i = 0; i < 10; ++i) {
    prompt_.clock().Advance(absl::Seconds(4));
    Run();
    EXPECT_EQ(Ask("a"), 96);
    EXPECT_EQ(prompt_.UnheldLoads(hit), 0) << "after " << 4 * (i + 1) << " s";
  }
  EXPECT_EQ(lookups_->totals().searches, 1);
  EXPECT_EQ(lookups_->totals().renewals, 5);
  lookups_->Forget("a");
  Run();
  EXPECT_FALSE(AnyLeased());
}

TEST_P(BackgroundLookupsTest, LostStateAtRenewalIsLookedUpAnew) {
  Ask("a");
  Run();
  ASSERT_EQ(Ask("a"), 96);
  for (const store::ObjectKey& key : prompt_.Keys({kv::GroupIndex(1), kv::HashIndex(5)})) prompt_.pool().Lose(key);
  prompt_.clock().Advance(absl::Seconds(6));
  Run();
  EXPECT_EQ(Ask("a"), -1);
  Run();
  EXPECT_EQ(Ask("a"), 80);
}

TEST_P(BackgroundLookupsTest, FailuresOfThePoolAreMisses) {
  prompt_.pool().set_before_call([](auto, auto) { return absl::UnavailableError("away"); });
  Ask("a");
  Run();
  EXPECT_EQ(Ask("a"), 0);
  prompt_.pool().set_before_call([](auto, auto) -> absl::Status { throw std::runtime_error("thrown"); });
  Ask("b");
  Run();
  EXPECT_EQ(Ask("b"), 0);
  EXPECT_EQ(lookups_->totals().misses_error, 2);
  EXPECT_FALSE(AnyLeased());
}

TEST_P(BackgroundLookupsTest, FailuresOfARenewalKeepTheAnswerWhileItsLeaseLasts) {
  Ask("a");
  Run();
  prompt_.pool().set_before_call([](auto, auto) -> absl::Status { throw std::runtime_error("thrown"); });
  prompt_.clock().Advance(absl::Seconds(6));
  Run();
  EXPECT_EQ(Ask("a"), 96);
  prompt_.pool().set_before_call(nullptr);
  prompt_.clock().Advance(absl::Seconds(1));
  Run();
  prompt_.clock().Advance(absl::Seconds(5));
  EXPECT_EQ(Ask("a"), 96) << "renewed after the failure";
}

TEST_P(BackgroundLookupsTest, SearchesInTheCallWhereAsked) {
  BackgroundLookupOptions options = WithoutThreads();
  options.search_inline = true;
  lookups_ = Make(options);
  EXPECT_EQ(Ask("a"), -1);
  lookups_->Await("a");
  EXPECT_EQ(Ask("a"), 96);
  lookups_->Await("a");
  lookups_->Await("unknown");
  EXPECT_EQ(lookups_->totals().searches, 1);
}

TEST_P(BackgroundLookupsTest, StopEndsEveryLeaseAndAnswersMisses) {
  Ask("a");
  Run();
  ASSERT_EQ(Ask("a"), 96);
  lookups_->Stop();
  EXPECT_FALSE(AnyLeased());
  EXPECT_EQ(Ask("a"), 0);
  lookups_->Stop();
}

TEST_P(BackgroundLookupsTest, CallsOfThePoolAreRecorded) {
  prompt_.pool().set_unavailable([this](const auto& key) {
    return key == prompt_.Key({kv::GroupIndex(1), kv::HashIndex(5)}, 0);
  });
  Ask("a");
  Run();
  prompt_.pool().set_unavailable(nullptr);
  Ask("b");
  Run();
  prompt_.pool().set_before_call([](auto, auto) { return absl::UnavailableError("away"); });
  Ask("c");
  Run();
  std::vector<std::string> calls;
  for (const LookupRecord& record : lookups_->TakeOperations()) {
    calls.push_back(fmt::format("{} {} {}", ToString(record.operation), record.failed_keys, ToString(record.status)));
    EXPECT_GT(record.keys, 0);
    EXPECT_TRUE(record.status != OperationStatus::kError || record.failed_keys == record.keys);
  }
  EXPECT_THAT(calls, ::testing::Contains("lookup_probe 1 partial_failure"));
  EXPECT_THAT(calls, ::testing::Contains("lookup_probe 0 ok"));
  EXPECT_THAT(calls, ::testing::Contains("lookup_lease 0 ok"));
  EXPECT_THAT(calls.back(), HasSubstr("error"));
  EXPECT_TRUE(lookups_->TakeOperations().empty());
}

TEST_P(BackgroundLookupsTest, OptionsOutOfRangeAreNamed) {
  const auto refused = [this](const BackgroundLookupOptions& options) {
    return std::string(Message(
        BackgroundLookups::Create(Model(), prompt_.pool(), prompt_.namespaces(), options, prompt_.clock()).status()));
  };
  BackgroundLookupOptions options = WithoutThreads();
  options.threads = 17;
  EXPECT_THAT(refused(options), HasSubstr("lookup_threads is 17"));
  options = WithoutThreads();
  options.answers.deadline = absl::ZeroDuration();
  EXPECT_THAT(refused(options), HasSubstr("lookup_deadline is 0"));
  options = WithoutThreads();
  options.answers.start_above = 0.6;
  EXPECT_THAT(refused(options), HasSubstr("start_above is 0.6"));
  options = WithoutThreads();
  options.lookup.lease_ttl = absl::ZeroDuration();
  EXPECT_THAT(refused(options), HasSubstr("lease_ttl"));
}

std::unique_ptr<store::EmbeddedPool> MakePool(const Clock& clock) {
  store::EmbeddedPoolOptions options;
  options.capacity = options.slab_bytes = Bytes(1 << 20);
  options.mode = store::PoolMode::kIndependent;
  options.memory = store::MemoryKind::kVirtual;
  return store::EmbeddedPool::Create(options, clock).value();
}

// A pool whose probes wait while a gate is shut, as those of a pool that hangs.
class GatedPool final : public ForwardingPool {
 public:
  using ForwardingPool::ForwardingPool;

  void Shut(bool shut) {
    MutexLock lock(mutex_);
    shut_ = shut;
    changed_.SignalAll();
  }
  void WaitForProbe() {
    MutexLock lock(mutex_);
    while (waiting_ == 0) changed_.Wait(mutex_);
  }

  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override {
    {
      MutexLock lock(mutex_);
      ++waiting_;
      changed_.SignalAll();
      while (shut_) changed_.Wait(mutex_);
      --waiting_;
    }
    return ForwardingPool::Probe(keys, answers);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

class BackgroundThreadsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kChunks = 8;

  BackgroundThreadsTest() {
    const store::ConstSegment segment{nullptr, 4096};
    std::vector<store::PutObject> objects;
    for (const kv::BlockHash& hash : hashes_) objects.push_back({{name_space_, hash}, {&segment, 1}});
    std::vector<store::PutAnswer> answers(objects.size());
    EXPECT_TRUE(pool_.Put(objects, answers).ok());
  }

  void Make(const BackgroundLookupOptions& options) { Make(options, clock_); }
  void Make(const BackgroundLookupOptions& options, const Clock& clock) {
    auto lookups = BackgroundLookups::Create(config_, pool_, {{name_space_}}, options, clock);
    ASSERT_TRUE(lookups.ok()) << lookups.status();
    lookups_ = *std::move(lookups);
  }
  // Without grace, on hand_clock_: request "a" waits for a probe that does not end. Returns the options.
  BackgroundLookupOptions MakeWithAHangingSearch() {
    BackgroundLookupOptions options;
    options.grace = absl::ZeroDuration();
    Make(options, hand_clock_);
    pool_.Shut(true);
    EXPECT_EQ(Ask("a"), nullptr);
    pool_.WaitForProbe();
    return options;
  }
  Answer Ask(const std::string& request) { return lookups_->Ask(request, {source_, Tokens(kChunks * 16 + 1)}); }
  Answer AskUntilAnswered(const std::string& request) {
    Answer answer = Ask(request);
    while (answer == nullptr) {
      std::this_thread::yield();
      answer = Ask(request);
    }
    return answer;
  }
  // Lease ends are left to a thread.
  void ExpectNothingLeased() {
    lookups_->Stop();
    EXPECT_EQ(pool_.Stats().held.leased, 0);
  }

  const kv::CacheConfig config_ = Config(16, 16, false, {Full(16)});
  MonotonicClock clock_;
  ManualClock hand_clock_;  // Of lookups whose time a test moves; outlives them.
  const std::unique_ptr<store::EmbeddedPool> embedded_ = MakePool(clock_);
  GatedPool pool_{*embedded_};
  const store::NamespaceId name_space_ = pool_.OpenNamespace("m").value();
  const std::vector<kv::BlockHash> hashes_ = kv::RandomHashes(kChunks);
  const std::shared_ptr<const connector::HashSource> source_ = std::make_shared<SpanHashSource>(hashes_);
  std::unique_ptr<BackgroundLookups> lookups_;
};

TEST_F(BackgroundThreadsTest, ManyRequestsOnSeveralThreads) {
  BackgroundLookupOptions options;
  options.threads = 3;
  options.answers.deadline = absl::Minutes(10);
  Make(options);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 20; ++i) Ask(std::to_string(i));
    for (int i = 0; i < 20; i += 3) lookups_->Forget(std::to_string(i));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(AskUntilAnswered(std::to_string(i))->length, Tokens(kChunks * 16));
    for (int i = 0; i < 20; ++i) lookups_->Forget(std::to_string(i));
  }
  ExpectNothingLeased();
}

TEST_F(BackgroundThreadsTest, AHangingPoolCostsItsRequestADeadlineAndTheCallerNothing) {
  const BackgroundLookupOptions options = MakeWithAHangingSearch();
  EXPECT_EQ(Ask("b"), nullptr);
  hand_clock_.Advance(options.answers.deadline);
  EXPECT_EQ(AskUntilAnswered("a")->length, Tokens());
  EXPECT_EQ(AskUntilAnswered("b")->length, Tokens());
  EXPECT_EQ(lookups_->totals().misses_deadline, 2);
  pool_.Shut(false);
  Ask("c");
  EXPECT_EQ(AskUntilAnswered("c")->length, Tokens(kChunks * 16)) << "what was late holds up nothing";
  ExpectNothingLeased();
}

TEST_F(BackgroundThreadsTest, WaitsAGraceForAFastPoolAndNotForASlowOne) {
  BackgroundLookupOptions options;
  options.grace = options.step_grace = absl::Minutes(10);
  options.answers.deadline = absl::Minutes(20);
  Make(options);
  Ask("a");
  lookups_->Await("a");
  EXPECT_EQ(Ask("a")->length, Tokens(kChunks * 16)) << "the pool answered within the grace";
  // Nobody is waited for once the grace has passed for one.
  options.grace = absl::Microseconds(1);
  Make(options);
  pool_.Shut(true);
  Ask("b");
  lookups_->Await("b");
  EXPECT_EQ(Ask("b"), nullptr);
  lookups_->Await("b");
  pool_.Shut(false);
  EXPECT_EQ(AskUntilAnswered("b")->length, Tokens(kChunks * 16));
  ExpectNothingLeased();
}

TEST_F(BackgroundThreadsTest, AllRequestsOfAStepAreWaitedForNoLongerThanItsGrace) {
  BackgroundLookupOptions options;
  options.grace = absl::Minutes(10);
  options.step_grace = absl::Milliseconds(1);
  options.answers.deadline = absl::Minutes(20);
  Make(options);
  pool_.Shut(true);
  for (const bool next_step : {false, true}) {
    for (const char* request : {"a", "b", "c"}) {
      Ask(request);
      lookups_->Await(request);
      EXPECT_EQ(Ask(request), nullptr);
    }
    if (!next_step) lookups_->EndStep();
  }
  pool_.Shut(false);
  EXPECT_EQ(AskUntilAnswered("c")->length, Tokens(kChunks * 16));
  ExpectNothingLeased();
}

TEST_F(BackgroundThreadsTest, LeasesAreRenewedByTheThreads) {
  BackgroundLookupOptions options;
  options.lookup.lease_ttl = absl::Milliseconds(40);
  options.answers.deadline = absl::Minutes(10);
  Make(options);
  AskUntilAnswered("a");
  while (lookups_->totals().renewals < 5) std::this_thread::yield();
  EXPECT_EQ(lookups_->totals().renewals_lost, 0);
  ExpectNothingLeased();
}

TEST_F(BackgroundThreadsTest, StopsWhileSearchesAreQueuedAndUnderWay) {
  BackgroundLookupOptions options;
  options.threads = 2;
  Make(options);
  pool_.Shut(true);
  for (int i = 0; i < 50; ++i) Ask(std::to_string(i));
  pool_.WaitForProbe();
  std::thread opener([this] { pool_.Shut(false); });
  ExpectNothingLeased();
  opener.join();
}

TEST_F(BackgroundThreadsTest, StopGivesACallThatHangsUpAndEndsItWhenCalledAgain) {
  MakeWithAHangingSearch();
  EXPECT_FALSE(lookups_->Stop(absl::ZeroDuration()));
  EXPECT_EQ(Ask("a")->length, Tokens());
  EXPECT_FALSE(lookups_->Stop(absl::ZeroDuration()));
  pool_.Shut(false);
  EXPECT_TRUE(lookups_->Stop());
  EXPECT_TRUE(lookups_->Stop(absl::ZeroDuration()));
  ExpectNothingLeased();
}

}  // namespace
}  // namespace tenure::engine
