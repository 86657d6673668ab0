// DaemonPool::Put: reserve, copy with digest, commit; a window of objects at a time.
//
// A batch must end as if its objects had been put one after the other. Two things in it depend on an earlier object of
// the same round: an equal key (the daemon answers busy, since both are open) and a child whose parent is only reserved
// (it counts as waiting, of which there is little room). Both are put again in the next round, when the earlier object
// is there. Each such retry is owed to an object that was settled in its round, so rounds come to an end; and a round
// after one with refusals is as small as twice what went through, so that their cost stays in proportion.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/daemon_pool_internals.h"
#include "tenure/store/copy_digest.h"

namespace tenure::daemon {
namespace {

bool IsRefusal(store::PutAnswer answer) {
  return answer == store::PutAnswer::kRefusedFull || answer == store::PutAnswer::kRefusedWaiting;
}

}  // namespace

using store::ObjectKey;
using store::PutAnswer;
using store::PutObject;

class DaemonPool::PutCall {
 public:
  PutCall(Internals& internals, std::span<const PutObject> objects, std::span<PutAnswer> answers)
      : internals_(internals), objects_(objects), answers_(answers) {}

  absl::Status Check();
  absl::Status Run();

 private:
  absl::Status RunRound();
  void ChooseRound(int64_t window_bytes);
  absl::Status Reserve(LiveSession& session);
  absl::Status Copy(LiveSession& session);
  absl::Status Commit(LiveSession& session);
  void SortOut();
  // `again`: which of the round's objects before this one are owed a retry.
  bool IsOwedARetry(size_t in_round, const std::vector<size_t>& by_key, const std::vector<bool>& again) const;
  // The first object of the round with this key, if it stands before `in_round`.
  std::optional<size_t> Earlier(const ObjectKey& key, size_t in_round, const std::vector<size_t>& by_key) const;

  Internals& internals_;
  const std::span<const PutObject> objects_;
  const std::span<PutAnswer> answers_;
  std::vector<int64_t> sizes_;
  std::vector<size_t> pending_;  // Objects without a final answer, ascending.
  std::vector<size_t> round_;    // The first of them.
  size_t round_objects_max_ = kReserveObjectsMax;
  bool answered_ = false;

  ReserveRequest reserve_;
  ReserveReply reserved_;
  CommitRequest commit_;
  CommitReply committed_;
};

absl::Status DaemonPool::PutCall::Check() {
  TENURE_RETURN_IF_ERROR(internals_.CheckBatch("objects", objects_.size(), answers_.size()));
  sizes_.reserve(objects_.size());
  for (size_t at = 0; at < objects_.size(); ++at) {
    const PutObject& object = objects_[at];
    TENURE_RETURN_IF_ERROR(internals_.CheckKey("objects", at, object.key));
    if (internals_.pool_traits.closed && object.parent.has_value()) {
      TENURE_RETURN_IF_ERROR(internals_.CheckKey("parent of objects", at, *object.parent));
    }
    TENURE_ASSIGN_OR_RETURN(const int64_t size, SizeOf(at, object.segments));
    sizes_.push_back(size);
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::PutCall::Run() {
  std::fill(answers_.begin(), answers_.end(), PutAnswer::kNotStored);
  pending_.resize(objects_.size());
  std::iota(pending_.begin(), pending_.end(), size_t{0});
  while (!pending_.empty()) {
    const absl::Status status = RunRound();
    if (!status.ok()) return answered_ ? absl::OkStatus() : status;
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::PutCall::RunRound() {
  const std::shared_ptr<LiveSession> session = internals_.Session();
  if (session == nullptr) return NoDaemon();
  ChooseRound(internals_.WindowBytes(*session));
  TENURE_RETURN_IF_ERROR(Reserve(*session));
  TENURE_RETURN_IF_ERROR(Copy(*session));
  TENURE_RETURN_IF_ERROR(Commit(*session));
  SortOut();
  answered_ = true;
  return absl::OkStatus();
}

void DaemonPool::PutCall::ChooseRound(int64_t window_bytes) {
  round_.clear();
  int64_t bytes = 0;
  for (const size_t at : pending_) {
    const bool fits = sizes_[at] <= window_bytes - bytes && round_.size() < round_objects_max_;
    if (!round_.empty() && !fits) break;
    bytes += std::min(sizes_[at], window_bytes);
    round_.push_back(at);
  }
}

absl::Status DaemonPool::PutCall::Reserve(LiveSession& session) {
  absl::Status status =
      internals_.InTurn(session, [&](MonotonicTime deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
        reserve_.objects.clear();
        for (const size_t at : round_) {
          const PutObject& object = objects_[at];
          const bool has_parent = internals_.pool_traits.closed && object.parent.has_value();
          ReserveObject reserve{.key = object.key,
                                .size = static_cast<uint64_t>(sizes_[at]),
                                .kind = object.kind,
                                .has_parent = has_parent ? uint8_t{1} : uint8_t{0},
                                .parent = has_parent ? *object.parent : ObjectKey()};
          TENURE_RETURN_IF_ERROR(internals_.namespaces.ToDaemons(session, reserve.key, deadline));
          if (has_parent) TENURE_RETURN_IF_ERROR(internals_.namespaces.ToDaemons(session, reserve.parent, deadline));
          reserve_.objects.push_back(reserve);
        }
        return session.client->Call(reserve_, deadline, reserved_);
      });
  if (!status.ok()) return status;
  bool fits = reserved_.places.size() == round_.size();
  for (const ReservedPlace& place : reserved_.places) fits = fits && IsKnown(place.answer);
  return fits ? absl::OkStatus() : session.client->Break("the daemon's places do not fit what was asked");
}

absl::Status DaemonPool::PutCall::Copy(LiveSession& session) {
  const std::span<std::byte> memory = session.client->memory();
  commit_.batch = reserved_.batch;
  commit_.objects.clear();
  for (size_t i = 0; i < round_.size(); ++i) {
    const size_t at = round_[i];
    const uint64_t offset = reserved_.places[i].offset;
    if (offset == kNoOffset) continue;
    if (offset > memory.size() || static_cast<uint64_t>(sizes_[at]) > memory.size() - offset) {
      return session.client->Break("the daemon named a place outside of its memory");
    }
    const uint64_t digest = store::GatherWithDigest(internals_.namespaces.SeedOf(objects_[at].key),
                                                    objects_[at].segments, memory.data() + offset);
    commit_.objects.push_back({.ordinal = static_cast<uint32_t>(i), .digest = digest});
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::PutCall::Commit(LiveSession& session) {
  committed_.answers.clear();
  if (commit_.objects.empty()) return absl::OkStatus();
  TENURE_RETURN_IF_ERROR(internals_.InTurn(
      session, [&](MonotonicTime deadline) { return session.client->Call(commit_, deadline, committed_); }));
  return CheckAnswers(session, commit_.objects.size(), committed_.answers);
}

void DaemonPool::PutCall::SortOut() {
  for (size_t i = 0; i < round_.size(); ++i) answers_[round_[i]] = reserved_.places[i].answer;
  for (size_t i = 0; i < commit_.objects.size(); ++i) {
    answers_[round_[commit_.objects[i].ordinal]] = committed_.answers[i];
  }
  const bool all_placed = commit_.objects.size() == round_.size();
  std::vector<size_t> by_key;
  if (!all_placed) {
    by_key.resize(round_.size());
    std::iota(by_key.begin(), by_key.end(), size_t{0});
    std::sort(by_key.begin(), by_key.end(), [this](size_t a, size_t b) {
      const ObjectKey& left = objects_[round_[a]].key;
      const ObjectKey& right = objects_[round_[b]].key;
      return left != right ? left < right : a < b;
    });
  }
  std::vector<bool> owed(round_.size(), false);
  std::vector<size_t> again;
  for (size_t i = 0; i < round_.size() && !all_placed; ++i) {
    owed[i] = reserved_.places[i].offset == kNoOffset && IsOwedARetry(i, by_key, owed);
    if (owed[i]) again.push_back(round_[i]);
  }
  round_objects_max_ = again.empty() ? std::min(round_objects_max_ * 2, kReserveObjectsMax)
                                     : std::max<size_t>(1, 2 * commit_.objects.size());
  again.insert(again.end(), pending_.begin() + static_cast<ptrdiff_t>(round_.size()), pending_.end());
  pending_ = std::move(again);
}

bool DaemonPool::PutCall::IsOwedARetry(size_t in_round, const std::vector<size_t>& by_key,
                                       const std::vector<bool>& again) const {
  const PutObject& object = objects_[round_[in_round]];
  const PutAnswer answer = reserved_.places[in_round].answer;
  if (answer == PutAnswer::kBusy) return Earlier(object.key, in_round, by_key).has_value();
  if (!IsRefusal(answer) || !object.parent.has_value()) return false;
  const std::optional<size_t> parent = Earlier(*object.parent, in_round, by_key);
  return parent.has_value() && (again[*parent] || store::IsKept(answers_[round_[*parent]]));
}

std::optional<size_t> DaemonPool::PutCall::Earlier(const ObjectKey& key, size_t in_round,
                                                   const std::vector<size_t>& by_key) const {
  const auto found = std::lower_bound(by_key.begin(), by_key.end(), key, [this](size_t place, const ObjectKey& wanted) {
    return objects_[round_[place]].key < wanted;
  });
  if (found == by_key.end() || *found >= in_round || objects_[round_[*found]].key != key) return std::nullopt;
  return *found;
}

absl::Status DaemonPool::Put(std::span<const PutObject> objects, std::span<PutAnswer> answers) {
  PutCall call(*internals_, objects, answers);
  TENURE_RETURN_IF_ERROR(call.Check());
  return call.Run();
}

}  // namespace tenure::daemon
