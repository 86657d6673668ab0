#include "tenure/transfer/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tenure/base/status.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/tcp_transport.h"

namespace tenure::transfer {
namespace {

// Reads of answers before other connections have their turn.
constexpr int kReadsPerTurn = 16;

absl::Status Stranger() {
  return Unavailable("the peer has gone, and its port answers as no tcp transport of this version does");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpConnection>> TcpConnection::Create(const TcpPoller& poller, TcpDeadlines& deadlines,
                                                                     const TcpAddress& address, uint64_t id,
                                                                     MonotonicTime connect_deadline) {
  TENURE_ASSIGN_OR_RETURN(const SocketAddress target, NumericAddress(address.host, address.port));
  std::unique_ptr<TcpConnection> connection(new TcpConnection(poller, deadlines, id, connect_deadline));
  connection->receiver_ = address.receiver;
  TENURE_ASSIGN_OR_RETURN(connection->socket_, TcpSocket::Connect(target));
  if (!poller.Add(connection->socket_.fd(), connection->events_, *connection)) {
    return Unavailable("the system cannot wait for the connection to the peer");
  }
  return connection;
}

TcpConnection::TcpConnection(const TcpPoller& poller, TcpDeadlines& deadlines, uint64_t id,
                             MonotonicTime connect_deadline)
    : poller_(poller),
      deadlines_(deadlines),
      id_(id),
      connect_deadline_(connect_deadline),
      placer_(TcpTransport::kKind) {
  deadlines_[{connect_deadline_, id_}] = this;
}

TcpConnection::~TcpConnection() { Fail(Unavailable("the connection to the peer is closed")); }

absl::StatusOr<std::vector<PlacedWrite>> TcpConnection::Place(const MemoryMap& own,
                                                              const std::vector<pd::MemoryKey>& memory,
                                                              const std::vector<pd::WritePiece>& pieces) {
  return placer_.Place(own, memory, pieces);
}

void TcpConnection::Post(uint64_t id, std::vector<PlacedWrite> writes, MonotonicTime deadline, WriteDone done) {
  Sending& post = posts_[id];
  for (const PlacedWrite& write : writes) post.total += write.size;
  post.writes = std::move(writes);
  post.deadline = deadline;
  post.done = std::move(done);
  deadlines_[{deadline, id}] = this;
  Await();
}

void TcpConnection::OnDeadline(uint64_t id) {
  if (id == id_) {
    deadlines_.erase({connect_deadline_, id_});
    if (state_ != State::kOpen)
      Fail(Unavailable("the peer does not take part within {}", absl::FormatDuration(TcpSocket::kSilenceMax)));
    return;
  }
  const auto post = posts_.find(id);
  const bool alone = posts_.size() == 1;
  // Posts in time keep the connection; the last one that runs into its deadline takes it down, unless it never had to
  // do with it.
  const bool began = post->second.issued() || state_ != State::kOpen || lined_up();
  Answer(post, absl::DeadlineExceededError("the write was not done by its deadline"));
  if (alone && began) Fail(absl::DeadlineExceededError("the peer took no part in time"));
}

void TcpConnection::Fail(absl::Status status) {
  if (!error_.ok()) return;
  error_ = std::move(status);
  deadlines_.erase({connect_deadline_, id_});
  if (socket_.valid()) {
    poller_.Remove(socket_.fd());
    socket_.Abort();  // What has not left is not to arrive once its post has its answer.
    socket_ = TcpSocket();
  }
  while (!posts_.empty()) Answer(posts_.begin(), error_);
}

void TcpConnection::OnEvents(uint32_t events) {
  if (!socket_.valid()) return;
  if (state_ == State::kConnecting) {
    Greet();
  } else if ((events & ~EPOLLOUT) != 0) {
    // Answers first: a peer that has answered and gone has done what was asked.
    ReadAnswers();
    if (error_.ok() && (events & (EPOLLERR | EPOLLHUP)) != 0) {
      Fail(Unavailable("the connection to the peer is lost: {}", std::strerror(socket_.Error())));
    }
  }
  if (error_.ok() && state_ == State::kOpen) SendTurn();
  if (error_.ok()) Await();
}

void TcpConnection::Greet() {
  if (const int error = socket_.Error(); error != 0) {
    return Fail(Unavailable("connecting to the peer: {}", std::strerror(error)));
  }
  TcpGreeting greeting = {.receiver = receiver_};
  iovec bytes = {&greeting, sizeof(greeting)};
  // They fit into the buffer of a socket that has sent nothing.
  if (socket_.Write(&bytes, 1) != sizeof(greeting)) return Fail(Unavailable("the connection to the peer is lost"));
  state_ = State::kGreeting;
}

void TcpConnection::ReadAnswers() {
  std::array<char, 4096> bytes;
  for (int i = 0; i < kReadsPerTurn && error_.ok(); ++i) {
    iovec all = {bytes.data(), bytes.size()};
    const ssize_t size = socket_.Read(&all, 1);
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) return Fail(Unavailable("the connection to the peer is lost: {}", std::strerror(errno)));
    if (size == 0) return Fail(Unavailable("the peer has ended the connection"));
    for (const char byte : std::string_view(bytes.data(), static_cast<size_t>(size))) {
      answer_[answer_have_++] = byte;
      if (answer_have_ < answer_.size()) continue;
      answer_have_ = 0;
      OnAnswer(ReadHead<TcpAnswer>(answer_.data()));
      if (!error_.ok()) return;
    }
    if (static_cast<size_t>(size) < bytes.size()) return;
  }
}

void TcpConnection::OnAnswer(const TcpAnswer& answer) {
  if (state_ == State::kGreeting || answer.post == kTcpGreeting) {
    if (answer.post != kTcpGreeting || state_ != State::kGreeting) return Fail(Stranger());
    if (answer.verdict != Verdict::kWritten) return Fail(VerdictStatus(answer.verdict));
    state_ = State::kOpen;
    return;
  }
  const auto post = posts_.find(answer.post);
  if (post == posts_.end()) return;  // It is over.
  const bool all_sent = post->second.next == post->second.writes.size();
  if (answer.verdict == Verdict::kWritten && !all_sent) return Fail(Stranger());
  Answer(post, VerdictStatus(answer.verdict));
  if (answer.verdict != Verdict::kWritten) Fail(Unavailable("the peer refuses another write over this connection"));
}

void TcpConnection::SendTurn() {
  for (uint64_t turn = 0; turn < kBatchBytes;) {
    if (!lined_up()) LineUp();
    if (!lined_up()) return;
    const ssize_t size = socket_.Write(&parts_[next_part_], static_cast<int>(parts_.size() - next_part_));
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) return OnWriteError(errno);
    Sent(static_cast<size_t>(size));
    turn += static_cast<uint64_t>(size);
  }
}

void TcpConnection::LineUp() {
  heads_.clear();
  parts_.clear();
  next_part_ = 0;
  heads_.reserve(kBatchParts);  // They do not move while their addresses are in parts_.
  uint64_t bytes = 0;
  for (auto it = posts_.lower_bound(lining_up_); it != posts_.end();) {
    auto& [id, post] = *it;
    while (post.next < post.writes.size()) {
      if (bytes >= kBatchBytes || heads_.size() == kBatchParts) return;
      const PlacedWrite& write = post.writes[post.next];
      const uint64_t size = std::min(kPartBytes, write.size - post.offset);
      TcpPart& head = heads_.emplace_back(TcpPart{id, write.to + post.offset, size, post.total});
      parts_.push_back({&head, sizeof(head)});
      parts_.push_back({reinterpret_cast<void*>(write.from + post.offset), size});
      bytes += size;
      post.offset += size;
      if (post.offset < write.size) continue;
      ++post.next;
      post.offset = 0;
    }
    lining_up_ = id + 1;
    ++it;
  }
}

void TcpConnection::Sent(size_t bytes) {
  while (bytes > 0) {
    iovec& part = parts_[next_part_];
    const size_t of_part = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + of_part;
    part.iov_len -= of_part;
    bytes -= of_part;
    if (part.iov_len == 0) ++next_part_;
  }
}

void TcpConnection::OnWriteError(int error) {
  if (error == EFAULT) {
    const auto post = posts_.find(heads_[next_part_ / 2].post);
    if (post != posts_.end()) {
      Answer(post, InvalidArgument("memory that this process has registered is not there any more"));
    }
    return Fail(Unavailable("another write over this connection could not be sent"));
  }
  ReadAnswers();  // The peer may have said why.
  Fail(Unavailable("the connection to the peer is lost: {}", std::strerror(error)));
}

void TcpConnection::Answer(Posts::iterator post, absl::Status status) {
  const bool settled = status.ok() || !post->second.issued();
  const WriteDone done = std::move(post->second.done);
  deadlines_.erase({post->second.deadline, post->first});
  posts_.erase(post);
  done({std::move(status), settled});
}

void TcpConnection::Await() {
  const bool more = lined_up() || posts_.lower_bound(lining_up_) != posts_.end();
  const bool write = state_ == State::kConnecting || (state_ == State::kOpen && more);
  const uint32_t events = (state_ == State::kConnecting ? 0u : EPOLLIN) | (write ? EPOLLOUT : 0u);
  if (events != std::exchange(events_, events)) poller_.Change(socket_.fd(), events, *this);
}

}  // namespace tenure::transfer
