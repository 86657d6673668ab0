// Random calls on a clock that stands, steps and leaps, against a model that keeps a plain map and looks at everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tenure/base/random.h"
#include "tenure/pd/handoff_leases.h"

namespace tenure::pd {
namespace {

using PullState = HandoffLeases::PullState;

constexpr absl::Duration kLease = absl::Seconds(30);
constexpr absl::Duration kHold = absl::Seconds(480);

struct ModelTransfer {
  std::string request;  // Empty: a placeholder.
  bool ready = false;
  MonotonicTime deadline;
  std::map<uint64_t, MonotonicTime> waiters;
  int64_t needed = 0;
  std::set<int64_t> served;
  std::vector<int64_t> sending;
};

class Model {
 public:
  std::map<std::string, ModelTransfer> transfers;
  std::map<std::string, std::pair<HandoffEnd, MonotonicTime>> ended;

  void End(const std::string& id, HandoffEnd end, MonotonicTime now) {
    transfers.erase(id);
    ended.insert_or_assign(id, std::pair(end, now));
  }
};

class ModelRun {
 public:
  explicit ModelRun(uint64_t seed) : random_(seed) {}

  void Step() {
    switch (random_.Below(9)) {
      case 0:
        return Announce();
      case 1:
        return Finish();
      case 2:
        return Abandon();
      case 3:
        return Pull();
      case 4:
        return CancelWait();
      case 5:
        return BeginSend();
      case 6:
        return EndSend();
      case 7:
        return Renew();
      default:
        clock_.Advance(random_.Chance(0.02) ? absl::Seconds(random_.Below(600)) : absl::Seconds(random_.Below(12)));
        return Scan();
    }
  }
  // Every send ends, every lease passes: nothing may be left.
  void ExpectEmptyInTheEnd() {
    for (auto& [id, transfer] : model_.transfers) {
      for (const int64_t rank : transfer.sending) leases_->EndSend(id, {"d", rank, 0}, false, clock_.Now());
      if (!transfer.ready) leases_->Abandon(id, transfer.request, clock_.Now());
    }
    clock_.Advance(kHold);
    leases_->Scan(clock_.Now());
    EXPECT_EQ(leases_->num_transfers(), 0u);
    EXPECT_EQ(leases_->num_waiters(), 0u);
    clock_.Advance(kHold);
    leases_->Scan(clock_.Now());
    EXPECT_EQ(leases_->num_remembered(), 0u);
  }

 private:
  std::string AnyId() { return "x" + std::to_string(random_.Below(6)); }
  std::string AnyRequest() { return "p" + std::to_string(random_.Below(2)); }
  ModelTransfer* Find(const std::string& id) {
    const auto found = model_.transfers.find(id);
    return found == model_.transfers.end() ? nullptr : &found->second;
  }
  void ExpectWaiters(const ModelTransfer& transfer, std::vector<WaiterId> waiters) {
    std::sort(waiters.begin(), waiters.end());
    std::vector<WaiterId> expected;
    for (const auto& [waiter, deadline] : transfer.waiters) expected.push_back(WaiterId(waiter));
    EXPECT_EQ(waiters, expected);
  }

  void Announce() {
    const std::string id = AnyId(), request = AnyRequest();
    ModelTransfer* transfer = Find(id);
    const bool others = transfer != nullptr && !transfer->request.empty() && transfer->request != request;
    ASSERT_EQ(leases_->Announce(id, request).ok(), !others);
    if (others) return;
    if (transfer == nullptr) transfer = &model_.transfers[id];
    transfer->request = request;
    model_.ended.erase(id);
  }
  void Finish() {
    const std::string id = AnyId(), request = AnyRequest();
    ModelTransfer* transfer = Find(id);
    const auto waiters = leases_->Finish(id, request, {{1}}, clock_.Now());
    ASSERT_EQ(waiters.ok(), transfer != nullptr && transfer->request == request && !transfer->ready);
    if (!waiters.ok()) return;
    ExpectWaiters(*transfer, *waiters);
    transfer->waiters.clear();
    transfer->ready = true;
    transfer->deadline = clock_.Now() + kLease;
  }
  void Abandon() {
    const std::string id = AnyId(), request = AnyRequest();
    ModelTransfer* transfer = Find(id);
    const std::vector<WaiterId> waiters = leases_->Abandon(id, request, clock_.Now());
    if (transfer == nullptr) {
      EXPECT_TRUE(waiters.empty());
      model_.ended.try_emplace(id, HandoffEnd::kAborted, clock_.Now());
    } else if (transfer->ready || (!transfer->request.empty() && transfer->request != request)) {
      EXPECT_TRUE(waiters.empty());
    } else {
      ExpectWaiters(*transfer, waiters);
      model_.End(id, HandoffEnd::kAborted, clock_.Now());
    }
  }
  void Pull() {
    const std::string id = AnyId();
    const uint64_t waiter = ++last_waiter_;
    const auto answer = leases_->Pull(id, WaiterId(waiter), clock_.Now());
    ModelTransfer* transfer = Find(id);
    if (transfer != nullptr && transfer->ready) {
      EXPECT_EQ(answer.state, PullState::kReady);
    } else if (transfer == nullptr && model_.ended.count(id) > 0) {
      EXPECT_EQ(answer.state, PullState::kEnded);
      EXPECT_EQ(answer.end, model_.ended.at(id).first);
    } else {
      EXPECT_EQ(answer.state, PullState::kWaiting);
      model_.transfers[id].waiters[waiter] = clock_.Now() + kHold;
    }
  }
  void CancelWait() {
    const std::string id = AnyId();
    ModelTransfer* transfer = Find(id);
    const uint64_t waiter =
        transfer == nullptr || transfer->waiters.empty() ? last_waiter_ + 1 : transfer->waiters.begin()->first;
    leases_->CancelWait(id, WaiterId(waiter));
    if (transfer == nullptr) return;
    transfer->waiters.erase(waiter);
    if (transfer->request.empty() && transfer->waiters.empty()) model_.transfers.erase(id);
  }
  void BeginSend() {
    const std::string id = AnyId();
    ModelTransfer* transfer = Find(id);
    const bool ready = transfer != nullptr && transfer->ready;
    ASSERT_EQ(leases_->BeginSend(id, 2), ready);
    if (ready) transfer->sending.push_back(static_cast<int64_t>(random_.Below(3)));
  }
  void EndSend() {
    const std::string id = AnyId();
    ModelTransfer* transfer = Find(id);
    if (transfer == nullptr || transfer->sending.empty()) return;
    const int64_t rank = transfer->sending.back();
    const bool written = random_.Chance(0.5);
    transfer->sending.pop_back();
    if (written) transfer->served.insert(rank);
    const auto freed = leases_->EndSend(id, {"d", rank, 0}, written, clock_.Now());
    const bool all = transfer->sending.empty() && transfer->served.size() >= 2;
    ASSERT_EQ(freed.has_value(), all);
    if (!all) return;
    EXPECT_EQ(*freed, transfer->request);
    model_.End(id, HandoffEnd::kSent, clock_.Now());
  }
  void Renew() {
    const std::vector<std::string> ids = {AnyId(), AnyId()};
    const auto unknown = leases_->Renew(ids, clock_.Now());
    ASSERT_TRUE(unknown.ok());
    std::vector<std::string> expected;
    for (const std::string& id : ids) {
      ModelTransfer* transfer = Find(id);
      if (transfer == nullptr || transfer->request.empty()) {
        expected.push_back(id);
      } else if (transfer->ready) {
        transfer->deadline = std::max(transfer->deadline, clock_.Now() + absl::Seconds(20));
      }
    }
    EXPECT_EQ(*unknown, expected);
  }
  void Scan() {
    const HandoffLeases::ScanResult result = leases_->Scan(clock_.Now());
    const MonotonicTime now = clock_.Now();
    std::multiset<std::string> expired;
    std::set<uint64_t> timed_out;
    const std::map<std::string, ModelTransfer> before = model_.transfers;
    for (const auto& [id, transfer] : before) {
      for (const auto& [waiter, deadline] : transfer.waiters) {
        if (deadline > now) continue;
        timed_out.insert(waiter);
        model_.transfers[id].waiters.erase(waiter);
      }
      if (transfer.ready && transfer.deadline <= now && transfer.sending.empty()) {
        expired.insert(transfer.request);
        model_.End(id, HandoffEnd::kExpired, now);
      } else if (transfer.request.empty() && model_.transfers[id].waiters.empty()) {
        model_.transfers.erase(id);
      }
    }
    std::erase_if(model_.ended, [now](const auto& item) { return now - item.second.second >= kHold; });
    EXPECT_EQ(std::multiset<std::string>(result.expired_requests.begin(), result.expired_requests.end()), expired);
    std::set<uint64_t> told;
    for (const HandoffWaiter& waiter : result.timed_out) told.insert(waiter.waiter.value());
    EXPECT_EQ(told, timed_out);
    EXPECT_EQ(leases_->num_transfers(), model_.transfers.size());
    EXPECT_EQ(leases_->num_remembered(), model_.ended.size());
  }

  Random random_;
  ManualClock clock_;
  absl::StatusOr<HandoffLeases> leases_ = HandoffLeases::Create({.lease = kLease, .hold_timeout = kHold});
  Model model_;
  uint64_t last_waiter_ = 0;
};

TEST(HandoffLeasesModel, RandomCallsAnswerAsTheModelDoes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ModelRun run(seed);
    for (int step = 0; step < 3000 && !testing::Test::HasFailure(); ++step) run.Step();
    if (testing::Test::HasFailure()) return;
    run.ExpectEmptyInTheEnd();
  }
}

}  // namespace
}  // namespace tenure::pd
