#include "tenure/store/pool_model_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tenure/base/check.h"

namespace tenure::store {
namespace {

using State = PoolModel::State;

// Ranks within one step count as equal (eviction_policy.h).
int64_t Bucket(MonotonicTime rank) { return rank.nanoseconds() / absl::ToInt64Nanoseconds(absl::Milliseconds(64)); }

}  // namespace

const PoolModel::Object* PoolModel::Visible(int key) const {
  const auto object = objects_.find(key);
  return object != objects_.end() && object->second.state == State::kVisible ? &object->second : nullptr;
}

uint64_t PoolModel::Lease(int key, MonotonicTime until, MonotonicTime now) {
  if (Visible(key) == nullptr) return 0;
  Object& object = objects_.at(key);
  if (now >= object.deadline) object.holders = 0;
  ++object.holders;
  object.deadline = std::max(object.deadline, until);
  object.rank_low = object.rank_high = now;
  return object.serial;
}

void PoolModel::Release(int key, uint64_t serial, MonotonicTime handle_deadline, MonotonicTime now) {
  const auto object = objects_.find(key);
  if (object == objects_.end() || object->second.serial != serial || now >= handle_deadline) return;
  if (object->second.holders > 0 && --object->second.holders == 0) object->second.deadline = now;
}

std::string PoolModel::CheckPut(int key, int64_t size, std::optional<int> parent, PutAnswer answer, bool single,
                                MonotonicTime now) const {
  if (answer == PutAnswer::kNotStored) return "a put without a reason";
  if (size > options_.slab_bytes.value()) {
    return answer == PutAnswer::kRefusedSize || answer == PutAnswer::kSizeDiffers ? "" : "an object too large went in";
  }
  const bool refused = answer == PutAnswer::kRefusedFull || answer == PutAnswer::kRefusedIndex;
  if (const auto old = objects_.find(key); old != objects_.end()) {
    const Object& object = old->second;
    const bool gone_in_batch = !single && CanLeaveInTime(object, now);
    if (object.state == State::kWriting && answer != PutAnswer::kBusy) return "a key in writing was not busy";
    if (object.state == State::kVisible && !gone_in_batch) {
      const PutAnswer right = object.size == size ? PutAnswer::kExists : PutAnswer::kSizeDiffers;
      return answer == right ? "" : "a present key was put";
    }
    // One that waits may have been dropped, one that could leave may have made room earlier in the batch.
    if (answer == PutAnswer::kSizeDiffers && object.size != size && object.state == State::kWaiting) return "";
    if (answer == PutAnswer::kExists || answer == PutAnswer::kSizeDiffers) {
      return object.state == State::kVisible ? "" : "an invisible key exists";
    }
    if (object.state == State::kWriting) return "";
    if (object.state == State::kWaiting && (answer == PutAnswer::kWaiting || answer == PutAnswer::kBusy)) return "";
  }
  if (answer == PutAnswer::kBusy) return "busy without a writer";
  const Object* above = Closed() && parent ? Visible(*parent) : nullptr;
  if (refused) {
    // One that would have to wait may take free room only.
    const bool may_evict = !Closed() || !parent || above != nullptr;
    return single && may_evict && answer == PutAnswer::kRefusedFull ? CheckRefusal(size, parent, now) : "";
  }
  const bool waits = answer == PutAnswer::kWaiting || answer == PutAnswer::kRefusedWaiting;
  if (!Closed() || !parent) return answer == PutAnswer::kStored ? "" : "waits for no parent";
  if (above == nullptr) {
    // The parent itself may have been shown by an object before this one in the batch.
    const auto waiting = objects_.find(*parent);
    const bool shown = !single && waiting != objects_.end() && waiting->second.state == State::kWaiting;
    return waits || shown ? "" : "shown without its parent";
  }
  if (waits) return !single && CanLeaveInTime(*above, now) ? "" : "waits for a parent that is there";
  return "";
}

std::string PoolModel::CheckRefusal(int64_t size, std::optional<int> parent, MonotonicTime now) const {
  bool held = !ghosts_.empty();
  for (const auto& [key, object] : objects_) {
    held |= object.state != State::kVisible || IsLeased(object, now) || object.pins > 0;
    if (object.size == size && key != parent && CanLeave(object, now)) {
      return fmt::format("refused although key {} of the same size could leave", key);
    }
  }
  return held || parent ? "" : "refused although nothing is held";
}

uint64_t PoolModel::Add(int key, int64_t size, std::optional<int> parent, int version, State state, bool waits,
                        MonotonicTime now) {
  ++adds_;
  added_bytes_ += size;
  const Object* above = Closed() && parent && *parent != key ? Visible(*parent) : nullptr;
  const uint64_t parent_serial = above != nullptr ? above->serial : 0;
  if (const Object* old = Visible(key); old != nullptr) {  // It left unseen, earlier in the batch.
    ++replaced_;
    RaiseRankOfParent(*old, now);
  }
  Object& object = objects_[key];
  object = {.state = state,
            .serial = next_serial_++,
            .size = size,
            .version = version,
            .parent = Closed() ? parent : std::nullopt,
            .parent_serial = waits ? 0 : parent_serial,
            .rank_low = now,
            .rank_high = now};
  waiting_added_ += state == State::kWaiting;
  return object.serial;
}

std::string PoolModel::Commit(int key, uint64_t serial, PutAnswer answer, MonotonicTime now) {
  if (const auto ghost = ghosts_.find(serial); ghost != ghosts_.end()) {
    ghosts_.erase(ghost);
    return answer == PutAnswer::kNotStored ? "" : "a removed object was committed";
  }
  Object& object = objects_.at(key);
  TENURE_CHECK(object.serial == serial);
  object.rank_low = object.rank_high = now;
  const Object* above = object.parent && *object.parent != key ? Visible(*object.parent) : nullptr;
  const bool lost = object.parent_serial != 0 && (above == nullptr || above->serial != object.parent_serial);
  if (answer == PutAnswer::kNotStored) {
    objects_.erase(key);
    return lost ? "" : "a whole put was thrown away";
  }
  if (answer == PutAnswer::kWaiting) {
    object.state = State::kWaiting;
    object.parent_serial = 0;
    ++waiting_added_;
    return object.parent && above == nullptr ? "" : "a commit waits although its parent is there";
  }
  if (answer != PutAnswer::kStored) return fmt::format("a commit answered {}", ToString(answer));
  object.state = State::kVisible;
  if (lost) return "a commit was shown after its parent was removed";
  if (object.parent && above == nullptr) return "a commit was shown without its parent";
  object.parent_serial = above != nullptr ? above->serial : 0;
  return "";
}

void PoolModel::Abandon(int key, uint64_t serial) {
  if (ghosts_.erase(serial) == 0) objects_.erase(key);
}

void PoolModel::Unpin(int key, uint64_t serial) {
  if (const auto ghost = ghosts_.find(serial); ghost != ghosts_.end()) {
    if (--ghost->second.holders == 0) ghosts_.erase(ghost);
    return;
  }
  --objects_.at(key).pins;
}

int64_t PoolModel::Remove(int key) {
  int64_t visible = 0;
  const auto root = objects_.find(key);
  // A put of the key that is still open counts as coming after its removal.
  if (root == objects_.end() || root->second.state == State::kWriting) return 0;
  std::vector<int> doomed = {key};
  while (!doomed.empty()) {
    const auto found = objects_.find(doomed.back());
    doomed.pop_back();
    if (found == objects_.end()) continue;
    const Object object = found->second;
    objects_.erase(found);
    visible += object.state == State::kVisible;
    waiting_removed_ += object.state == State::kWaiting;
    RaiseRankOfParent(object, object.rank_high);
    coverage_.removed_while_pinned += object.pins > 0;
    const int64_t holders = object.state == State::kWriting ? 1 : object.pins;
    if (holders > 0) ghosts_[object.serial] = {.size = object.size, .holders = holders};
    for (const auto& [child_key, child] : objects_) {
      if (child.parent_serial == object.serial) doomed.push_back(child_key);
    }
  }
  return visible;
}

std::string PoolModel::Reconcile(Call call, const std::vector<int>& visible, const PoolStats& before,
                                 const PoolStats& after, MonotonicTime now) {
  std::map<int, Object> victims;
  for (const auto& [key, object] : objects_) {
    if (object.state == State::kVisible && !std::binary_search(visible.begin(), visible.end(), key)) {
      victims.emplace(key, object);
    }
  }
  for (const auto& [key, object] : victims) objects_.erase(key);
  ShowWaiting(visible, now);
  for (const int key : visible) {
    if (Visible(key) == nullptr) return fmt::format("key {} appeared from nowhere", key);
  }
  for (const auto& [key, object] : victims) {
    if (call == Call::kReads) return fmt::format("key {} vanished without a put", key);
    if (std::string wrong = CheckVictim(key, object, now); !wrong.empty()) return wrong;
  }
  coverage_.evicted += static_cast<int64_t>(victims.size());
  const int64_t evicted = after.evicted_total - before.evicted_total;
  const int64_t hidden = evicted - static_cast<int64_t>(victims.size());
  // In a batch an object may come and go unseen.
  if (hidden < 0 || hidden > replaced_ + (adds_ > 1 ? adds_ + Count(State::kWaiting) : 0)) {
    return fmt::format("{} objects left, {} are counted", victims.size(), evicted);
  }
  std::string wrong = CheckOrder(victims, now);
  if (wrong.empty()) wrong = CheckWaiting(after);
  if (wrong.empty()) wrong = CheckCounts(after, now);
  if (wrong.empty()) wrong = CheckWatermark(call, evicted, before, after);
  adds_ = 0;
  replaced_ = 0;
  added_bytes_ = 0;
  return wrong;
}

void PoolModel::RaiseRankOfParent(const Object& object, MonotonicTime rank) {
  for (auto& [key, parent] : objects_) {
    if (parent.serial == object.parent_serial) parent.rank_high = std::max(parent.rank_high, rank);
  }
}

// Whoever waits and is visible has been shown; whoever waits for a visible parent and is not was dropped before.
void PoolModel::ShowWaiting(const std::vector<int>& visible, MonotonicTime now) {
  for (bool again = true; again;) {
    again = false;
    for (auto& [key, object] : objects_) {
      if (object.state != State::kWaiting || !std::binary_search(visible.begin(), visible.end(), key)) continue;
      const Object* above = Visible(*object.parent);
      if (above == nullptr) continue;
      object.state = State::kVisible;
      object.parent_serial = above->serial;
      object.rank_high = now;
      ++waiting_shown_;
      ++coverage_.shown_after_waiting;
      again = true;
    }
  }
  // An open put hangs on its parent as soon as that is there.
  for (auto& [key, object] : objects_) {
    if (object.state == State::kWaiting || !object.parent || object.parent_serial != 0) continue;
    if (const Object* above = Visible(*object.parent); above != nullptr) object.parent_serial = above->serial;
  }
  std::erase_if(objects_, [this](const auto& item) {
    return item.second.state == State::kWaiting && Visible(*item.second.parent) != nullptr;
  });
}

std::string PoolModel::CheckVictim(int key, const Object& object, MonotonicTime now) const {
  if (IsLeased(object, now)) return fmt::format("leased key {} was evicted", key);
  if (object.pins > 0) return fmt::format("pinned key {} was evicted", key);
  if (HasChild(object.serial)) return fmt::format("key {} was evicted before its child", key);
  return "";
}

std::string PoolModel::CheckOrder(std::map<int, Object> victims, MonotonicTime now) {
  // Children first: a victim's rank is at least that of its victims below.
  for (bool again = true; again;) {
    again = false;
    for (const auto& [child_key, child] : victims) {
      for (auto& [key, object] : victims) {
        if (object.serial != child.parent_serial) continue;
        again |= object.rank_low < child.rank_low || object.rank_high < child.rank_high;
        object.rank_low = std::max(object.rank_low, child.rank_low);
        object.rank_high = std::max(object.rank_high, child.rank_high);
      }
    }
  }
  Inherit(victims);
  if (victims.empty() || !one_size_ || adds_ > 1) return "";
  ++coverage_.orders_checked;
  const auto last = std::max_element(victims.begin(), victims.end(), [](const auto& a, const auto& b) {
    return Bucket(a.second.rank_low) < Bucket(b.second.rank_low);
  });
  for (const auto& [key, object] : objects_) {
    if (CanLeave(object, now) && Bucket(object.rank_high) < Bucket(last->second.rank_low)) {
      return fmt::format("key {} of bucket {} was evicted before key {} of bucket {}", last->first,
                         Bucket(last->second.rank_low), key, Bucket(object.rank_high));
    }
  }
  return "";
}

void PoolModel::Inherit(const std::map<int, Object>& victims) {
  for (const auto& [victim_key, victim] : victims) {
    for (auto& [key, object] : objects_) {
      if (victim.parent_serial != object.serial) continue;
      object.rank_low = std::max(object.rank_low, victim.rank_low);
      object.rank_high = std::max(object.rank_high, victim.rank_high);
      ++coverage_.evicted_parents;
    }
  }
}

std::string PoolModel::CheckWaiting(const PoolStats& after) {
  const int64_t waiting = Count(State::kWaiting);
  if (after.held.waiting > waiting) return fmt::format("{} wait, at most {} can", after.held.waiting, waiting);
  int64_t unexplained = waiting_added_ - waiting_shown_ - after.evicted_waiting_total - after.held.waiting;
  if (adds_ > 1 && unexplained > 0) {  // Shown and evicted within the batch.
    waiting_shown_ += unexplained;
    unexplained = 0;
  }
  if (unexplained < 0 || unexplained > waiting_removed_) {
    return fmt::format("waiting: {} added, {} shown, {} dropped, {} there", waiting_added_, waiting_shown_,
                       after.evicted_waiting_total, after.held.waiting);
  }
  coverage_.dropped_waiting = after.evicted_waiting_total;
  if (after.held.waiting == 0) {
    std::erase_if(objects_, [](const auto& item) { return item.second.state == State::kWaiting; });
  }
  return "";
}

std::string PoolModel::CheckCounts(const PoolStats& after, MonotonicTime now) const {
  int64_t fixed = 0;
  int64_t waiting = 0;
  int64_t leased = 0;
  for (const auto& [key, object] : objects_) {
    (object.state == State::kWaiting ? waiting : fixed) += object.size;
    leased += object.state == State::kVisible && IsLeased(object, now);
  }
  for (const auto& [serial, ghost] : ghosts_) fixed += ghost.size;
  const int64_t used = after.used.value() - fixed;
  const bool exact = after.held.waiting == Count(State::kWaiting);
  if (used < 0 || used > waiting || (exact && used != waiting)) {
    return fmt::format("{} bytes used, {} by objects and up to {} by waiting ones", after.used.value(), fixed, waiting);
  }
  if (after.used > after.capacity) return "more used than there is";
  if (after.objects != Count(State::kVisible)) {
    return fmt::format("{} objects counted, {} visible", after.objects, Count(State::kVisible));
  }
  const auto ghosts = static_cast<int64_t>(ghosts_.size());
  // The parent of an open put cannot leave either; whether it counts as pinned or as a parent is left open.
  int64_t pinned = 0;
  int64_t open_parents = 0;
  for (const auto& [key, object] : objects_) {
    pinned += object.state == State::kVisible && object.pins > 0;
    open_parents += HasOpenChild(object.serial);
  }
  if (after.held.pinned < pinned || after.held.pinned > pinned + open_parents + ghosts) {
    return fmt::format("{} counted as pinned, {} are", after.held.pinned, pinned);
  }
  const int64_t writing = Count(State::kWriting);
  if (after.held.writing < writing || after.held.writing > writing + ghosts) {
    return fmt::format("{} counted as in writing, {} and up to {} removed ones are", after.held.writing, writing,
                       ghosts);
  }
  if (after.held.leased != leased) return fmt::format("{} counted as leased, {} are", after.held.leased, leased);
  return "";
}

std::string PoolModel::CheckWatermark(Call call, int64_t evicted, const PoolStats& before, const PoolStats& after) {
  const auto capacity = static_cast<double>(after.capacity.value());
  const auto used = static_cast<double>(after.used.value());
  if (call == Call::kMaintain && evicted > 0) {
    if (!pass_may_run_) return "a pass ran below the high watermark";
    if (evicted > options_.pass_step_objects_max) return fmt::format("a step took {} victims", evicted);
    const int64_t last = one_size_ ? objects_.empty() ? 0 : objects_.begin()->second.size : options_.slab_bytes.value();
    if (used + static_cast<double>(last) < options_.low_watermark * capacity) {
      return fmt::format("a pass went on to {} bytes", after.used.value());
    }
  }
  const int64_t peak = std::max(before.used.value() + added_bytes_, after.used.value());
  pass_may_run_ |= static_cast<double>(peak) > options_.high_watermark * capacity;
  if (call == Call::kMaintain && used <= options_.low_watermark * capacity) pass_may_run_ = false;
  return "";
}

bool PoolModel::HasChild(uint64_t serial) const {
  return std::any_of(objects_.begin(), objects_.end(),
                     [serial](const auto& item) { return item.second.parent_serial == serial; });
}

bool PoolModel::HasOpenChild(uint64_t serial) const {
  return std::any_of(objects_.begin(), objects_.end(), [serial](const auto& item) {
    return item.second.parent_serial == serial && item.second.state == State::kWriting;
  });
}

bool PoolModel::CanLeave(const Object& object, MonotonicTime now) const {
  return object.state == State::kVisible && !IsLeased(object, now) && object.pins == 0 && !HasChild(object.serial);
}

bool PoolModel::CanLeaveInTime(const Object& object, MonotonicTime now) const {
  if (object.state != State::kVisible || IsLeased(object, now) || object.pins > 0) return false;
  return std::all_of(objects_.begin(), objects_.end(), [this, &object, now](const auto& item) {
    return item.second.parent_serial != object.serial || CanLeaveInTime(item.second, now);
  });
}

int64_t PoolModel::Count(State state) const {
  return std::count_if(objects_.begin(), objects_.end(),
                       [state](const auto& item) { return item.second.state == state; });
}

}  // namespace tenure::store
