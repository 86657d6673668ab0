#include "tenure/transfer/tcp_transport.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/transfer/command_queue.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/post_intake.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/tcp_connection.h"
#include "tenure/transfer/tcp_receiver.h"

namespace tenure::transfer {
namespace {

// A sleep ends at the latest then, whatever the clock: a test's clock may move without a sign.
constexpr absl::Duration kSleepMax = absl::Milliseconds(100);
constexpr absl::Duration kIdleSleepMax = absl::Seconds(1);

class TcpThread final : public TcpTransport, private TcpHandler {
 public:
  explicit TcpThread(const Clock& clock) : clock_(clock) {}

  ~TcpThread() override {
    if (!thread_.joinable()) return;
    commands_.Push([this] { stopping_ = true; });
    thread_.join();
  }

  absl::Status Start(const TcpTransportOptions& options) {
    if (!commands_.valid() || !poller_.valid() || !poller_.Add(commands_.fd(), EPOLLIN, *this)) {
      return Unavailable("this process has no file descriptor left for the tcp transport");
    }
    TENURE_ASSIGN_OR_RETURN(receiver_, TcpReceiver::Create(poller_, ranges_, options, clock_));
    address_ = EncodeTcpAddress(receiver_->address());
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  absl::Status Register(const std::vector<MemoryRange>& ranges) override {
    for (const MemoryRange& range : ranges) TENURE_RETURN_IF_ERROR(CheckHostMemory(range.address, range.size));
    return ranges_.Add(ranges);
  }

  pd::TransportAddress Address() const override { return {std::string(kKind), address_, ranges_.Keys()}; }

  absl::Status CanReach(const pd::TransportAddress& peer) override {
    TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
    return DecodeTcpAddress(address).status();
  }

  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override {
    intake_.Post(std::move(done), [this, peer, pieces = std::move(pieces), deadline](const WriteDone& counted) {
      return StartPost(peer, pieces, deadline, counted);
    });
  }

 private:
  using Connections = std::map<std::string, std::unique_ptr<TcpConnection>>;

  // The rest runs in the transport's thread.

  void OnEvents(uint32_t /*events*/) override { commands_.Clear(); }

  void Run() {
    while (true) {
      commands_.RunAll();
      if (stopping_) break;
      poller_.Wait(Longest());
      Expire();
      receiver_->Sweep();
      for (auto it = connections_.begin(); it != connections_.end();) {
        it = it->second->status().ok() ? std::next(it) : connections_.erase(it);
      }
    }
    for (const auto& [address, connection] : connections_) connection->Fail(Unavailable("the transport ends"));
    connections_.clear();
    receiver_.reset();
    while (commands_.RunAll()) {  // Posts from within `done`, which are refused.
    }
  }

  absl::Duration Longest() const {
    const MonotonicTime next =
        std::min(receiver_->next_sweep(), deadlines_.empty() ? MonotonicTime::Max() : deadlines_.begin()->first.first);
    if (next == MonotonicTime::Max()) return kIdleSleepMax;
    return std::min(kSleepMax, next - clock_.Now());
  }

  void Expire() {
    const MonotonicTime now = clock_.Now();
    while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
      const auto due = deadlines_.begin();
      due->second->OnDeadline(due->first.second);
    }
  }

  absl::Status StartPost(const pd::TransportAddress& peer, const std::vector<pd::WritePiece>& pieces,
                         MonotonicTime deadline, const WriteDone& done) {
    TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
    if (stopping_) return Unavailable("the transport ends");
    if (clock_.Now() >= deadline) return absl::DeadlineExceededError("the write was not begun by its deadline");
    TENURE_ASSIGN_OR_RETURN(const TcpAddress target, DecodeTcpAddress(address));
    if (pieces.empty()) {
      done({absl::OkStatus(), true});
      return absl::OkStatus();
    }
    TENURE_ASSIGN_OR_RETURN(TcpConnection * connection, Connect(address, target));
    TENURE_ASSIGN_OR_RETURN(std::vector<PlacedWrite> writes,
                            connection->Place(ranges_.Get()->map, peer.memory, pieces));
    if (writes.empty()) {
      done({absl::OkStatus(), true});
    } else {
      connection->Post(next_id_++, std::move(writes), deadline, done);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TcpConnection*> Connect(const std::string& address, const TcpAddress& target) {
    auto known = connections_.find(address);
    if (known != connections_.end() && !known->second->status().ok()) {
      connections_.erase(known);
      known = connections_.end();
    }
    if (known == connections_.end()) {
      MakeRoom();
      TENURE_ASSIGN_OR_RETURN(
          std::unique_ptr<TcpConnection> connection,
          TcpConnection::Create(poller_, deadlines_, target, next_id_++, clock_.Now() + TcpSocket::kSilenceMax));
      known = connections_.emplace(address, std::move(connection)).first;
    }
    known->second->last_used = clock_.Now();
    return known->second.get();
  }

  // Closes the longest unused connection without posts when there are too many.
  void MakeRoom() {
    if (connections_.size() < kConnectionsMax) return;
    auto oldest = connections_.end();
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
      const bool older = oldest == connections_.end() || it->second->last_used < oldest->second->last_used;
      if (it->second->idle() && older) oldest = it;
    }
    if (oldest != connections_.end()) connections_.erase(oldest);
  }

  const Clock& clock_;
  RangeRegistry ranges_;
  CommandQueue commands_;
  PostIntake intake_{commands_};
  TcpPoller poller_;
  std::string address_;
  std::thread thread_;

  // Of the thread.
  bool stopping_ = false;
  std::unique_ptr<TcpReceiver> receiver_;
  TcpDeadlines deadlines_;
  Connections connections_;  // By the peer's address.
  uint64_t next_id_ = 1;     // Of posts and connections.
};

}  // namespace

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Create(const TcpTransportOptions& options,
                                                                   const Clock& clock) {
  auto transport = std::make_unique<TcpThread>(clock);
  TENURE_RETURN_IF_ERROR(transport->Start(options));
  return transport;
}

}  // namespace tenure::transfer
