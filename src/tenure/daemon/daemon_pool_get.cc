// DaemonPool::Get: pin, copy and verify, unpin; a window of objects at a time.
#include <algorithm>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/daemon_pool_internals.h"
#include "tenure/store/copy_digest.h"

namespace tenure::daemon {

using store::GetObject;
using store::KeyAnswer;

class DaemonPool::GetCall {
 public:
  GetCall(Internals& internals, std::span<const GetObject> objects, std::span<KeyAnswer> answers)
      : internals_(internals), objects_(objects), answers_(answers) {}

  absl::Status Check();
  absl::Status Run();

 private:
  // Gets objects from `first` on and returns how many.
  absl::StatusOr<size_t> RunWindow(size_t first);
  absl::StatusOr<KeyAnswer> Copy(LiveSession& session, size_t at, const PinnedPlace& place);

  Internals& internals_;
  const std::span<const GetObject> objects_;
  const std::span<KeyAnswer> answers_;
  std::vector<int64_t> sizes_;
  PinRequest request_;
  PinReply reply_;
};

absl::Status DaemonPool::GetCall::Check() {
  TENURE_RETURN_IF_ERROR(internals_.CheckBatch("objects", objects_.size(), answers_.size()));
  sizes_.reserve(objects_.size());
  for (size_t at = 0; at < objects_.size(); ++at) {
    TENURE_RETURN_IF_ERROR(internals_.CheckKey("objects", at, objects_[at].key));
    TENURE_ASSIGN_OR_RETURN(const int64_t size, SizeOf(at, objects_[at].segments));
    sizes_.push_back(size);
  }
  return absl::OkStatus();
}

absl::Status DaemonPool::GetCall::Run() {
  std::fill(answers_.begin(), answers_.end(), KeyAnswer::kUnavailable);
  for (size_t first = 0; first < objects_.size();) {
    const absl::StatusOr<size_t> count = RunWindow(first);
    if (!count.ok()) return first == 0 ? count.status() : absl::OkStatus();
    first += *count;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> DaemonPool::GetCall::RunWindow(size_t first) {
  const std::shared_ptr<LiveSession> expected = internals_.Session();
  if (expected == nullptr) return NoDaemon();
  const int64_t window = internals_.WindowBytes(*expected);
  std::vector<store::ObjectKey> keys;
  int64_t bytes = 0;
  for (size_t at = first; at < objects_.size() && keys.size() < kMessageKeysMax; ++at) {
    if (!keys.empty() && sizes_[at] > window - bytes) break;
    bytes += std::min(sizes_[at], window);
    keys.push_back(objects_[at].key);
  }
  TENURE_ASSIGN_OR_RETURN(const std::shared_ptr<LiveSession> session, internals_.AskKeys(keys, request_, reply_));
  if (reply_.places.size() != keys.size()) {
    return session->client->Break("the daemon's places do not fit what was asked");
  }
  UnpinRequest unpin{.batch = reply_.batch, .corrupt = {}};
  for (size_t i = 0; i < keys.size(); ++i) {
    TENURE_ASSIGN_OR_RETURN(answers_[first + i], Copy(*session, first + i, reply_.places[i]));
    const bool pinned = reply_.places[i].answer == KeyAnswer::kPresent;
    if (pinned && answers_[first + i] == KeyAnswer::kAbsent) unpin.corrupt.push_back(static_cast<uint32_t>(i));
  }
  // A daemon that ends gives its pages back, but closes the sockets first. A digest is of what was read, not of what
  // was copied a moment later; with the socket still open both were the object.
  if (session->client->HungUp()) {
    std::fill_n(answers_.begin() + static_cast<ptrdiff_t>(first), keys.size(), KeyAnswer::kUnavailable);
    return session->client->Break("the daemon has ended or cut this client off");
  }
  internals_.Tell(*session, unpin);
  return keys.size();
}

absl::StatusOr<KeyAnswer> DaemonPool::GetCall::Copy(LiveSession& session, size_t at, const PinnedPlace& place) {
  if (!IsKnown(place.answer)) return session.client->Break("the daemon sent an unknown answer");
  if (place.answer != KeyAnswer::kPresent) return place.answer;
  const std::span<std::byte> memory = session.client->memory();
  if (place.offset > memory.size() || place.size > memory.size() - place.offset) {
    return session.client->Break("the daemon named a place outside of its memory");
  }
  if (place.size != static_cast<uint64_t>(sizes_[at])) return KeyAnswer::kSizeDiffers;
  const uint64_t digest = store::ScatterWithDigest(internals_.namespaces.SeedOf(objects_[at].key),
                                                   memory.data() + place.offset, objects_[at].segments);
  return digest == place.digest ? KeyAnswer::kPresent : KeyAnswer::kAbsent;
}

absl::Status DaemonPool::Get(std::span<const GetObject> objects, std::span<KeyAnswer> answers) {
  GetCall call(*internals_, objects, answers);
  TENURE_RETURN_IF_ERROR(call.Check());
  return call.Run();
}

}  // namespace tenure::daemon
