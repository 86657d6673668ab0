// The state machine of lookups: who gets which answer when, and that every lease ends.
#include "tenure/engine/lookup_answers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tenure/base/random.h"
#include "tenure/kv/random_hashes_testing.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::engine {
namespace {

using connector::LookupOutcome;
using connector::LookupResult;
using Answer = LookupAnswers::Answer;

constexpr absl::Duration kTtl = absl::Seconds(10);

class LookupAnswersTest : public ::testing::Test {
 protected:
  LookupAnswersTest() {
    for (const kv::BlockHash& hash : hashes_) pool_.Insert({store::NamespaceId(0), hash});
  }

  Answer Ask(const std::string& request, int64_t tokens = 100) {
    dropped_ = {};
    return answers_.Ask(request, {source_, Tokens(tokens)}, clock_.Now(), dropped_);
  }
  store::Lease Lease(size_t keys = 2) {
    std::vector<store::ObjectKey> asked;
    for (size_t i = 0; i < keys; ++i) asked.push_back({store::NamespaceId(0), hashes_[i]});
    std::vector<store::KeyAnswer> answers(keys);
    return pool_.AcquireLease(asked, kTtl, answers).value();
  }
  LookupResult Hit(int64_t tokens) {
    LookupResult result;
    result.hit.length = Tokens(tokens);
    result.outcome = LookupOutcome::kHit;
    result.leases.push_back(Lease());
    return result;
  }
  static LookupResult Miss(LookupOutcome outcome) {
    LookupResult result;
    result.outcome = outcome;
    return result;
  }
  void End(const LookupAnswers::Search& search, LookupResult result) {
    answers_.EndSearch(search, std::move(result), clock_.Now(), dropped_);
  }
  // The next search, answered.
  void Answered(LookupResult result) {
    const auto search = answers_.NextSearch(clock_.Now());
    ASSERT_TRUE(search.has_value());
    End(*search, std::move(result));
  }
  // The request's next renewal answered with `lease`; false when none is due.
  bool Renew(absl::StatusOr<std::optional<store::Lease>> lease) {
    const auto renewal = answers_.NextRenewal(clock_.Now());
    if (!renewal) return false;
    answers_.EndRenewal(*renewal, std::move(lease), clock_.Now(), dropped_);
    dropped_ = {};
    return true;
  }
  // Objects with a lease once what was dropped has ended.
  int64_t Leased() {
    dropped_ = {};
    int64_t leased = 0;
    for (const store::ObjectKey& key : pool_.Keys()) leased += pool_.IsLeased(key);
    return leased;
  }

  ManualClock clock_;
  store::FakePool pool_{clock_, false};
  std::vector<kv::BlockHash> hashes_ = kv::RandomHashes(4);
  std::shared_ptr<const connector::HashSource> source_ = std::make_shared<connector::SpanHashSource>(hashes_);
  LookupAnswers answers_{{}};
  LookupAnswers::Dropped dropped_;
};

TEST_F(LookupAnswersTest, QueuedSearchesAreThoseOfOneDeadlineWhileNobodyTakesThem) {
  size_t longest = 0;
  for (int i = 0; i < 100; ++i) {
    Ask(std::to_string(i));
    clock_.Advance(absl::Milliseconds(100));
    longest = std::max(longest, answers_.queued());
  }
  EXPECT_LE(longest, 10U);
  const auto search = answers_.NextSearch(clock_.Now());
  ASSERT_TRUE(search.has_value());
  EXPECT_EQ(search->request, "91") << "those before it are late";
}

TEST_F(LookupAnswersTest, OneSearchARequestAndTheSameAnswerUntilForgotten) {
  EXPECT_EQ(Ask("a"), nullptr);
  EXPECT_EQ(Ask("a"), nullptr);
  Answered(Hit(64));
  EXPECT_FALSE(answers_.NextSearch(clock_.Now()).has_value());
  const Answer answer = Ask("a");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->length, Tokens(64));
  EXPECT_EQ(Ask("a"), answer);
  EXPECT_EQ(answers_.totals().searches, 1);
  EXPECT_EQ(Leased(), 2);
  answers_.Forget("a", dropped_);
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(Ask("a"), nullptr);
}

TEST_F(LookupAnswersTest, AnotherQueryOfTheRequestStartsAnew) {
  Ask("a", 100);
  Answered(Hit(64));
  EXPECT_EQ(Ask("a", 120), nullptr) << "more tokens after a preemption";
  EXPECT_EQ(Leased(), 0);
  const auto longer = kv::RandomHashes(6);
  const auto old = answers_.NextSearch(clock_.Now());
  EXPECT_EQ(
      answers_.Ask("a", {std::make_shared<connector::SpanHashSource>(longer), Tokens(120)}, clock_.Now(), dropped_),
      nullptr);
  End(*old, Hit(64));
  EXPECT_EQ(Ask("a", 120), nullptr) << "an answer to the old query was taken";
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(answers_.totals().unwanted, 2);
}

TEST_F(LookupAnswersTest, LateAnswersAreMissesAndTheirLeasesEnd) {
  Ask("a");
  const auto search = answers_.NextSearch(clock_.Now());
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_EQ(Ask("a"), nullptr);
  clock_.Advance(absl::Milliseconds(1));
  ASSERT_NE(Ask("a"), nullptr);
  EXPECT_EQ(Ask("a")->length, Tokens());
  EXPECT_EQ(answers_.totals().misses_deadline, 1);
  End(*search, Hit(64));
  EXPECT_EQ(Ask("a")->length, Tokens()) << "a late hit became an answer";
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(answers_.totals().hits, 0);
}

TEST_F(LookupAnswersTest, LateIsLateEvenIfNobodyAskedMeanwhile) {
  Ask("a");
  const auto search = answers_.NextSearch(clock_.Now());
  clock_.Advance(absl::Seconds(2));
  End(*search, Hit(64));
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(Ask("a")->length, Tokens());
  EXPECT_EQ(answers_.totals().misses_deadline, 1);
}

TEST_F(LookupAnswersTest, SearchesThatNobodyCanUseAreNotMade) {
  Ask("gone");
  answers_.Forget("gone", dropped_);
  Ask("late");
  clock_.Advance(absl::Seconds(1));
  Ask("a");
  const auto search = answers_.NextSearch(clock_.Now());
  ASSERT_TRUE(search.has_value());
  EXPECT_EQ(search->request, "a");
  EXPECT_EQ(answers_.totals().unwanted, 1);
}

TEST_F(LookupAnswersTest, MissesAreCountedByCause) {
  for (const LookupOutcome outcome : {LookupOutcome::kMiss, LookupOutcome::kMissLost, LookupOutcome::kMissError}) {
    const std::string request = std::to_string(static_cast<int>(outcome));
    Ask(request);
    Answered(Miss(outcome));
    EXPECT_EQ(Ask(request)->length, Tokens());
  }
  const LookupTotals& totals = answers_.totals();
  EXPECT_EQ(totals.misses, 1);
  EXPECT_EQ(totals.misses_lost, 1);
  EXPECT_EQ(totals.misses_error, 1);
}

TEST_F(LookupAnswersTest, LeasesAreRenewedBelowHalfOfThem) {
  Ask("a");
  Answered(Hit(64));
  EXPECT_EQ(answers_.next_renewal_at(), clock_.Now() + kTtl / 2);
  clock_.Advance(kTtl / 2 - absl::Nanoseconds(1));
  EXPECT_FALSE(Renew(std::optional(Lease())));
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_TRUE(Renew(std::optional(Lease())));
  EXPECT_EQ(answers_.next_renewal_at(), clock_.Now() + kTtl / 2);
  clock_.Advance(kTtl / 2 - absl::Nanoseconds(1));
  EXPECT_EQ(Ask("a")->length, Tokens(64));
  EXPECT_EQ(Leased(), 2);
  answers_.Forget("a", dropped_);
  EXPECT_EQ(Leased(), 0);
}

TEST_F(LookupAnswersTest, AKeyThatIsGoneAtRenewalDropsTheAnswer) {
  Ask("a");
  Answered(Hit(64));
  clock_.Advance(kTtl / 2);
  EXPECT_TRUE(Renew(std::optional<store::Lease>()));
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(Ask("a"), nullptr);
  Answered(Hit(32));
  EXPECT_EQ(Ask("a")->length, Tokens(32));
  EXPECT_EQ(answers_.totals().renewals_lost, 1);
}

TEST_F(LookupAnswersTest, FailedRenewalsAreTriedWhileTheLeaseLasts) {
  Ask("a");
  Answered(Hit(64));
  clock_.Advance(kTtl / 2);
  EXPECT_TRUE(Renew(absl::UnavailableError("away")));
  EXPECT_FALSE(Renew(absl::UnavailableError("away"))) << "at once";
  EXPECT_EQ(Ask("a")->length, Tokens(64)) << "the old lease still holds";
  while (answers_.next_renewal_at() != MonotonicTime::Max()) {
    clock_.AdvanceTo(answers_.next_renewal_at());
    EXPECT_TRUE(Renew(absl::UnavailableError("away")));
  }
  EXPECT_EQ(answers_.size(), 0u) << "the lease is over";
  EXPECT_EQ(Ask("a"), nullptr);
  EXPECT_GT(answers_.totals().renewals_error, 2);
}

TEST_F(LookupAnswersTest, NoAnswerWithTooLittleOfTheLeaseLeft) {
  Ask("a");
  Answered(Hit(64));
  clock_.Advance(kTtl * 3 / 4);
  EXPECT_EQ(Ask("a"), nullptr) << "a load could outlive it";
  EXPECT_TRUE(Renew(std::optional(Lease())));
  EXPECT_EQ(Ask("a")->length, Tokens(64));
  clock_.Advance(kTtl * 3 / 4);
  EXPECT_EQ(Ask("a"), nullptr);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Ask("a")->length, Tokens()) << "a pool that does not renew must not hold the request up";
  EXPECT_EQ(answers_.totals().hits_expired, 1);
  EXPECT_EQ(Leased(), 0);
}

TEST_F(LookupAnswersTest, RenewalsOfForgottenRequestsEndTheirLease) {
  Ask("a");
  Answered(Hit(64));
  clock_.Advance(kTtl / 2);
  const auto renewal = answers_.NextRenewal(clock_.Now());
  answers_.Forget("a", dropped_);
  answers_.EndRenewal(*renewal, std::optional(Lease()), clock_.Now(), dropped_);
  EXPECT_EQ(Leased(), 0);
}

// Any order of calls: an answer is leased long enough, stays the same, and at the end every lease has ended.
TEST_F(LookupAnswersTest, RandomHistoriesLeakNothing) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Random random(seed);
  std::vector<LookupAnswers::Search> searches;
  std::vector<LookupAnswers::Renewal> renewals;
  int64_t offered = 0;
  const auto take = [&random](auto& list) {
    std::swap(list[random.Below(list.size())], list.back());
    auto item = std::move(list.back());
    list.pop_back();
    return item;
  };
  for (int round = 0; round < 50000; ++round) {
    dropped_ = {};
    const bool slow = round / 1000 % 2 == 1;  // The pool answers rarely.
    const std::string request = std::to_string(random.Below(6));
    const uint64_t choice = random.Below(100);
    if (choice < 45) {
      const Answer answer = Ask(request, random.Chance(0.001) ? 101 : 100);
      if (answer == nullptr || answer->length == Tokens()) continue;
      ++offered;
      ASSERT_TRUE(pool_.IsLeased({store::NamespaceId(0), hashes_[0]})) << "round " << round;
    } else if (choice < 60) {
      if (auto search = answers_.NextSearch(clock_.Now())) searches.push_back(*search);
    } else if (choice < 72 && !searches.empty() && (!slow || random.Chance(0.5))) {
      const auto search = take(searches);
      End(search, random.Chance(0.7) ? Hit(64) : Miss(LookupOutcome::kMissError));
    } else if (choice < 80) {
      if (auto renewal = answers_.NextRenewal(clock_.Now())) renewals.push_back(*renewal);
    } else if (choice < 88 && !renewals.empty() && (!slow || random.Chance(0.1))) {
      const auto renewal = take(renewals);
      absl::StatusOr<std::optional<store::Lease>> lease(std::nullopt);
      if (random.Chance(0.6)) lease = std::optional(Lease());
      if (random.Chance(0.2)) lease = absl::UnavailableError("away");
      answers_.EndRenewal(renewal, std::move(lease), clock_.Now(), dropped_);
    } else if (choice == 90) {
      answers_.Forget(request, dropped_);
    } else if (choice > 90) {
      clock_.Advance(absl::Milliseconds(random.Between(1, 400)));
    }
  }
  answers_.ForgetAll(dropped_);
  for (const auto& search : searches) End(search, Hit(64));
  for (const auto& renewal : renewals) answers_.EndRenewal(renewal, std::optional(Lease()), clock_.Now(), dropped_);
  EXPECT_EQ(Leased(), 0);
  EXPECT_EQ(answers_.size(), 0u);
  EXPECT_EQ(answers_.next_renewal_at(), MonotonicTime::Max());
  const LookupTotals& totals = answers_.totals();
  EXPECT_EQ(totals.searches, totals.hits + totals.misses + totals.misses_lost + totals.misses_error +
                                 totals.misses_deadline + totals.unwanted);
  EXPECT_GT(offered, 1000);
  EXPECT_GT(totals.misses_deadline, 10);
  EXPECT_GT(totals.hits_expired, 10);
  EXPECT_GT(totals.renewals_lost, 10);
}

}  // namespace
}  // namespace tenure::engine
