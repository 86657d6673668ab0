#include "tenure/transfer/tcp_receiver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/transfer/socket_address.h"

namespace tenure::transfer {
namespace {

// What is read at once behind a part, or where small ones come one after the other.
constexpr size_t kBufferBytes = 128 << 10;

// From here on the rest of a part is read into memory directly, and little behind it: what is read there is copied.
constexpr uint64_t kDirectBytes = 16 << 10;
constexpr size_t kBehindDirectBytes = 4 << 10;

// Connections taken in one turn, and how long none is without descriptors for them.
constexpr int kAcceptsPerTurn = 64;
constexpr absl::Duration kDeafTime = absl::Milliseconds(500);

}  // namespace

class TcpReceiver::Connection final : public TcpHandler {
 public:
  Connection(TcpReceiver& receiver, TcpSocket socket, uint64_t number)
      : id(number), receiver_(receiver), socket_(std::move(socket)), inbound_(receiver.address_.receiver) {}

  bool Start() { return receiver_.poller_.Add(socket_.fd(), events_, *this); }
  void End() {
    receiver_.poller_.Remove(socket_.fd());
    socket_ = TcpSocket();
  }

  void OnEvents(uint32_t events) override {
    if (!socket_.valid()) return;
    // Of a writer that has ended the connection with an error, nothing more is written to memory.
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return receiver_.Close(*this);
    if ((events & EPOLLIN) != 0 && !ReadTurn()) return receiver_.Close(*this);
    if (!SendAnswers()) return receiver_.Close(*this);
    const bool refused = inbound_.state() == TcpInbound::State::kRefused;
    if (refused && inbound_.answers.empty() && !std::exchange(said_all_, true)) socket_.EndWriting();
    const bool stranger = inbound_.state() != TcpInbound::State::kOpen;
    if (stranger != (stranger_until != MonotonicTime::Max())) receiver_.SetStranger(*this, stranger);
    Await();
  }

  const uint64_t id;
  MonotonicTime stranger_until = MonotonicTime::Max();  // Max: it is none.

 private:
  // Whether the connection goes on.
  bool ReadTurn() {
    const std::shared_ptr<const RegisteredRanges> memory = receiver_.ranges_.Get();
    for (uint64_t turn = 0; turn < kTurnBytes && inbound_.answers.size() <= kAnswerBytesMax;) {
      const uint64_t direct = std::min(inbound_.left(), kTurnBytes);
      std::vector<char>& buffer = receiver_.buffer_;
      std::array<iovec, 2> parts = {iovec{reinterpret_cast<void*>(inbound_.to()), direct},
                                    iovec{buffer.data(), direct >= kDirectBytes ? kBehindDirectBytes : buffer.size()}};
      const size_t asked = parts[0].iov_len + parts[1].iov_len;
      const ssize_t size = direct > 0 ? socket_.Read(parts.data(), 2) : socket_.Read(&parts[1], 1);
      if (size == 0) return false;
      if (size < 0) {
        if (errno == EFAULT) inbound_.RefusePart();
        return errno == EFAULT || errno == EAGAIN;
      }
      const auto read = static_cast<size_t>(size);
      const uint64_t arrived = std::min<uint64_t>(read, direct);
      if (arrived > 0) inbound_.Arrived(arrived);
      inbound_.Take(memory->map, std::string_view(buffer.data(), read - arrived));
      if (inbound_.state() == TcpInbound::State::kBroken) return false;
      if (read < asked) return true;
      turn += read;
    }
    return true;
  }

  // Whether the connection goes on.
  bool SendAnswers() {
    if (inbound_.answers.empty()) return true;
    iovec all = {inbound_.answers.data(), inbound_.answers.size()};
    const ssize_t size = socket_.Write(&all, 1);
    if (size < 0) return errno == EAGAIN;
    inbound_.answers.erase(0, static_cast<size_t>(size));
    return true;
  }

  void Await() {
    const uint32_t events =
        (inbound_.answers.size() <= kAnswerBytesMax ? EPOLLIN : 0u) | (inbound_.answers.empty() ? 0u : EPOLLOUT);
    if (events != std::exchange(events_, events)) receiver_.poller_.Change(socket_.fd(), events, *this);
  }

  TcpReceiver& receiver_;
  TcpSocket socket_;
  TcpInbound inbound_;
  uint32_t events_ = EPOLLIN;
  bool said_all_ = false;
};

absl::StatusOr<std::unique_ptr<TcpReceiver>> TcpReceiver::Create(const TcpPoller& poller, const RangeRegistry& ranges,
                                                                 const TcpTransportOptions& options,
                                                                 const Clock& clock) {
  std::unique_ptr<TcpReceiver> receiver(new TcpReceiver(poller, ranges, options.writers_max, clock));
  TENURE_RETURN_IF_ERROR(receiver->Listen(options.host));
  return receiver;
}

TcpReceiver::TcpReceiver(const TcpPoller& poller, const RangeRegistry& ranges, size_t writers_max, const Clock& clock)
    : poller_(poller), ranges_(ranges), writers_max_(writers_max), clock_(clock), buffer_(kBufferBytes) {}

TcpReceiver::~TcpReceiver() {
  if (listener_.valid()) poller_.Remove(listener_.fd());
  for (const auto& [id, connection] : connections_) connection->End();
}

absl::Status TcpReceiver::Listen(const std::string& host) {
  TENURE_ASSIGN_OR_RETURN(const SocketAddress own, ListenAddress(host));
  TENURE_ASSIGN_OR_RETURN(listener_, TcpSocket::Listen(own));
  address_.host = HostOf(own);
  address_.port = listener_.port();
  if (getentropy(&address_.receiver, sizeof(address_.receiver)) != 0) {
    return Unavailable("the system gives no random bytes");
  }
  if (!poller_.Add(listener_.fd(), EPOLLIN, *this)) return Unavailable("the system cannot wait for connections");
  return absl::OkStatus();
}

void TcpReceiver::OnEvents(uint32_t /*events*/) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    TcpSocket socket = listener_.Accept();
    if (socket.valid()) {
      Take(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) return;
    // Descriptors or memory are used up; asking again and again would take this thread from the connections there are.
    LogWarning("tcp: no connection can be taken for now: {}", std::strerror(errno));
    deaf_until_ = clock_.Now() + kDeafTime;
    poller_.Change(listener_.fd(), 0, *this);
    return;
  }
}

void TcpReceiver::Take(TcpSocket socket) {
  if (connections_.size() - strangers_.size() >= writers_max_) {
    LogWarning("tcp: a connection is refused, since {} writers have one", writers_max_);
    return;
  }
  while (strangers_.size() >= kStrangersMax) Close(*connections_.at(strangers_.begin()->second));
  const uint64_t id = next_id_++;
  Connection& taken =
      *connections_.emplace(id, std::make_unique<Connection>(*this, std::move(socket), id)).first->second;
  SetStranger(taken, true);
  if (!taken.Start()) Close(taken);
}

void TcpReceiver::SetStranger(Connection& connection, bool stranger) {
  if (connection.stranger_until != MonotonicTime::Max()) {
    strangers_.erase({connection.stranger_until, connection.id});
    connection.stranger_until = MonotonicTime::Max();
  }
  if (!stranger) return;
  connection.stranger_until = clock_.Now() + kStrangerTime;
  strangers_.emplace(connection.stranger_until, connection.id);
}

void TcpReceiver::Close(Connection& connection) {
  SetStranger(connection, false);
  connection.End();
  const auto known = connections_.find(connection.id);
  closed_.push_back(std::move(known->second));
  connections_.erase(known);
}

void TcpReceiver::Sweep() {
  const MonotonicTime now = clock_.Now();
  while (!strangers_.empty() && strangers_.begin()->first <= now) {
    Close(*connections_.at(strangers_.begin()->second));
  }
  closed_.clear();
  if (deaf_until_ == MonotonicTime::Min() || deaf_until_ > now) return;
  deaf_until_ = MonotonicTime::Min();
  poller_.Change(listener_.fd(), EPOLLIN, *this);
}

MonotonicTime TcpReceiver::next_sweep() const {
  MonotonicTime next = strangers_.empty() ? MonotonicTime::Max() : strangers_.begin()->first;
  if (deaf_until_ != MonotonicTime::Min()) next = std::min(next, deaf_until_);
  return next;
}

}  // namespace tenure::transfer
