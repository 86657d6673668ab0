#include "tenure/transfer/local_transport.h"

#include <atomic>
#include <climits>
#include <deque>
#include <thread>
#include <utility>

#include "tenure/base/mutex.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {
namespace {

// The writes of a post, cut into parts for process_vm_writev. Both sides have the same lengths.
class PartCutter {
 public:
  explicit PartCutter(const std::vector<PlacedWrite>& writes) : writes_(writes) { from_.reserve(IOV_MAX); }

  bool done() const { return next_ == writes_.size(); }
  const std::vector<iovec>& from() const { return from_; }
  const std::vector<iovec>& to() const { return to_; }

  // The next part, from where Advance has come to.
  void Cut() {
    from_.clear();
    to_.clear();
    uint64_t left = LocalTransport::kPartBytesMax;
    uint64_t skip = skip_;
    for (size_t i = next_; i < writes_.size() && left > 0 && from_.size() < IOV_MAX; ++i, skip = 0) {
      const PlacedWrite& write = writes_[i];
      const uint64_t size = std::min(write.size - skip, left);
      // Addresses of two processes; only the kernel follows them.
      from_.push_back({reinterpret_cast<void*>(write.from + skip), size});
      to_.push_back({reinterpret_cast<void*>(write.to + skip), size});
      left -= size;
    }
  }

  void Advance(size_t bytes) {
    uint64_t written = skip_ + bytes;
    while (next_ < writes_.size() && written >= writes_[next_].size) written -= writes_[next_++].size;
    skip_ = written;
  }

 private:
  const std::vector<PlacedWrite>& writes_;
  size_t next_ = 0;
  uint64_t skip_ = 0;  // Bytes of writes_[next_] that are written.
  std::vector<iovec> from_;
  std::vector<iovec> to_;
};

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
    while (true) {
      Order order;
      {
        const MutexLock lock(mutex_);
        while (orders_.empty() && !stopping_) changed_.Wait(mutex_);
        if (orders_.empty()) return;
        order = std::move(orders_.front());
        orders_.pop_front();
      }
      absl::Status status = order.refused.ok() ? Write(order) : order.refused;
      {
        const MutexLock lock(mutex_);
        --open_;
      }
      order.done({std::move(status), true});
    }
  }

  absl::Status Write(const Order& order) {
    TENURE_RETURN_IF_ERROR(MayGoOn(order.deadline));
    TENURE_ASSIGN_OR_RETURN(const LocalPeer peer, Open(order.peer));
    TENURE_ASSIGN_OR_RETURN(const MemoryMap theirs, MemoryMap::Create(order.peer));
    TENURE_ASSIGN_OR_RETURN(const std::vector<PlacedWrite> writes,
                            PlaceWrites(ranges_.Get()->map, theirs, order.pieces));
    PartCutter cutter(writes);
    while (!cutter.done()) {
      TENURE_RETURN_IF_ERROR(MayGoOn(order.deadline));
      TENURE_RETURN_IF_ERROR(peer.CheckAlive());
      cutter.Cut();
      TENURE_ASSIGN_OR_RETURN(const size_t bytes, peer.Write(cutter.from().data(), cutter.from().size(),
                                                             cutter.to().data(), cutter.to().size()));
      cutter.Advance(bytes);
    }
    // The process that has the bytes is the one of the address, and D's transport had not ended meanwhile.
    return peer.CheckMark();
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
