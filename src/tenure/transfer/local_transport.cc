#include "tenure/transfer/local_transport.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "tenure/base/mutex.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/transfer/local_parts.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {
namespace {

struct Order {
  pd::TransportAddress peer;
  std::vector<pd::WritePiece> pieces;
  MonotonicTime deadline;
  WriteDone done;
  absl::Status refused;  // Not OK: the answer, and nothing is written.
};

class LocalWriter final : public LocalTransport {
 public:
  LocalWriter(const LocalTransportOptions& options, const Clock& clock, LocalIdentity identity)
      : clock_(clock), identity_(std::move(identity)) {
    // A transport that comes later, at the same place in the same process, has another mark: also after an exec, where
    // only time differs when addresses are not spread.
    static std::atomic<uint64_t> serial = 0;
    const auto place = reinterpret_cast<uint64_t>(&mark_);
    mark_ = Random::Mix(identity_.start_time + Random::Mix(place) + serial.fetch_add(1) +
                        Random::Mix(static_cast<uint64_t>(clock_.Now().nanoseconds())));
    identity_.mark_address = place;
    identity_.mark = mark_;
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~LocalWriter() override {
    mark_ = 0;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.SignalAll();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Register(const std::vector<MemoryRange>& ranges) override {
    for (const MemoryRange& range : ranges) TENURE_RETURN_IF_ERROR(CheckHostMemory(range.address, range.size));
    return ranges_.Add(ranges);
  }

  pd::TransportAddress Address() const override {
    return {std::string(kKind), EncodeLocalIdentity(identity_), ranges_.Keys()};
  }

  absl::Status CanReach(const pd::TransportAddress& peer) override { return Open(peer).status(); }

  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override {
    Order order = {peer, std::move(pieces), deadline, std::move(done), absl::OkStatus()};
    {
      const MutexLock lock(mutex_);
      // A refusal waits for its turn too, without its pieces: `done` is never called from here.
      if (open_ >= kOpenPostsMax) {
        order = {{},
                 {},
                 deadline,
                 std::move(order.done),
                 ResourceExhausted("{} posts are open; post again when some are done", open_)};
      }
      ++open_;
      orders_.push_back(std::move(order));
    }
    changed_.SignalOne();
  }

 private:
  absl::StatusOr<LocalPeer> Open(const pd::TransportAddress& peer) const {
    TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
    TENURE_ASSIGN_OR_RETURN(const LocalIdentity identity, DecodeLocalIdentity(address));
    return LocalPeer::Open(identity);
  }

  void Run() {
    Order order;
    LocalParts* parts = nullptr;
    while (NextWork(order, parts)) {
      if (parts != nullptr) {
        WriteParts(*parts, [this] { return OrderWaits(); });
        parts->Leave();
        continue;
      }
      absl::Status status = order.refused.ok() ? Write(order) : order.refused;
      {
        const MutexLock lock(mutex_);
        --open_;
      }
      const WriteDone done = std::move(order.done);
      done({std::move(status), true});
    }
  }

  // Waits for an order, or for a post of another thread to help with: then `parts` is it, and joined. False: the end.
  bool NextWork(Order& order, LocalParts*& parts) {
    const MutexLock lock(mutex_);
    while (true) {
      parts = nullptr;
      if (!orders_.empty()) {
        order = std::move(orders_.front());
        orders_.pop_front();
        return true;
      }
      if (stopping_) return false;
      const auto shared = std::find_if(shared_.begin(), shared_.end(), [](LocalParts* post) { return post->Join(); });
      if (shared != shared_.end()) {
        parts = *shared;
        return true;
      }
      changed_.Wait(mutex_);
    }
  }

  absl::Status Write(const Order& order) {
    TENURE_RETURN_IF_ERROR(MayGoOn(order.deadline));
    TENURE_ASSIGN_OR_RETURN(LocalPeer peer, Open(order.peer));
    TENURE_ASSIGN_OR_RETURN(const MemoryMap theirs, MemoryMap::Create(order.peer));
    TENURE_ASSIGN_OR_RETURN(std::vector<PlacedWrite> writes, PlaceWrites(ranges_.Get()->map, theirs, order.pieces));
    LocalParts parts(std::move(peer), std::move(writes), order.deadline);
    const bool splits = parts.Splits();
    if (splits) Share(parts);
    WriteParts(parts, [] { return false; });
    if (splits) Unshare(parts);
    TENURE_RETURN_IF_ERROR(parts.status());
    // The process that has the bytes is the one of the address, and D's transport had not ended meanwhile.
    return parts.peer().CheckMark();
  }

  // Threads without an order help with it from now on.
  void Share(LocalParts& parts) {
    {
      const MutexLock lock(mutex_);
      shared_.push_back(&parts);
    }
    changed_.SignalAll();
  }

  // Nobody writes for it any more when this returns.
  void Unshare(LocalParts& parts) {
    {
      const MutexLock lock(mutex_);
      shared_.erase(std::find(shared_.begin(), shared_.end(), &parts));
    }
    parts.WaitForHelpers();
  }

  // Takes parts and writes them, until none is left or `leave` says so between two of them.
  template <typename Leave>
  void WriteParts(LocalParts& parts, const Leave& leave) {
    LocalPart part;
    while (!leave() && parts.Take(part)) {
      const absl::Status status = WritePart(parts, part);
      if (!status.ok()) parts.Fail(status);
    }
  }

  absl::Status WritePart(const LocalParts& parts, LocalPart& part) {
    while (!part.done()) {
      TENURE_RETURN_IF_ERROR(MayGoOn(parts.deadline()));
      TENURE_RETURN_IF_ERROR(parts.peer().CheckAlive());
      TENURE_RETURN_IF_ERROR(part.WriteOnce(parts.peer()));
    }
    return absl::OkStatus();
  }

  bool OrderWaits() {
    const MutexLock lock(mutex_);
    return !orders_.empty();
  }

  absl::Status MayGoOn(MonotonicTime deadline) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) return Unavailable("the transport ends");
    }
    if (clock_.Now() < deadline) return absl::OkStatus();
    return absl::DeadlineExceededError("the write was not done by its deadline");
  }

  const Clock& clock_;
  LocalIdentity identity_;
  volatile uint64_t mark_ = 0;  // Peers read it from their processes.
  RangeRegistry ranges_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::vector<LocalParts*> shared_ ABSL_GUARDED_BY(mutex_);  // Large posts, the oldest first.
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalTransport>> LocalTransport::Create(const LocalTransportOptions& options,
                                                                       const Clock& clock) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return InvalidArgument("threads is {}; use 1 to {}", options.threads, kThreadsMax);
  }
  TENURE_ASSIGN_OR_RETURN(LocalIdentity identity, OwnIdentity());
  return std::make_unique<LocalWriter>(options, clock, std::move(identity));
}

}  // namespace tenure::transfer
