#include "tenure/daemon/client_session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tenure/base/look_again.h"
#include "tenure/daemon/unix_address.h"

namespace tenure::daemon {
namespace {

constexpr size_t kReceiveStepBytes = size_t{64} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<ClientSession>> ClientSession::Connect(const std::string& socket_path,
                                                                      absl::Duration patience) {
  TENURE_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(socket_path));
  // Not blocking: a daemon that is stopped with a full queue would hold the caller for ever.
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Unavailable("no socket for {}: {}", socket_path, std::strerror(errno));
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Unavailable("no daemon at socket {}: {}; start `tenure serve --socket {}` or correct the path", socket_path,
                       std::strerror(errno), socket_path);
  }
  std::unique_ptr<ClientSession> session(new ClientSession(std::move(socket)));
  if (absl::Status status = session->Greet(session->clock_.Now() + patience); !status.ok()) {
    return absl::Status(status.code(), fmt::format("socket {}: {}", socket_path, Message(status)));
  }
  return session;
}

absl::Status ClientSession::Greet(MonotonicTime deadline) {
  sending_.clear();
  AppendFrame(HelloRequest(), ++last_request_, sending_);
  const absl::Status sent = Send(deadline);
  received_.Clear();
  FileDescriptor memory;
  while (true) {
    // A daemon that refuses this client may have said why and gone before it could be greeted.
    const absl::Status received = ReceiveSome(deadline, &memory);
    if (!received.ok()) return sent.ok() ? received : sent;
    const absl::StatusOr<std::optional<FrameHeader>> header = ParseHeader(received_.bytes());
    if (!header.ok()) return Break(Message(header.status()));
    if (header->has_value() && received_.bytes().size() >= FrameHeader::kBytes + (*header)->body_bytes) break;
  }
  TENURE_RETURN_IF_ERROR(CheckReply(HelloReply::kType));
  // A later minor version may have added fields behind these.
  WireReader reader(ReplyBody());
  HelloReply::Fields(hello_, reader);
  if (reader.failed()) return Break("the daemon's answer to hello is malformed");
  if (hello_.major != kWireMajor) {
    return FailedPrecondition("the daemon speaks version {}.{}, this client {}.{}; use the same release on both sides",
                              hello_.major, hello_.minor, kWireMajor, kWireMinor);
  }
  return TakeMemory(std::move(memory));
}

absl::Status ClientSession::TakeMemory(FileDescriptor memory) {
  if (!memory.valid()) return Break("the daemon sent no memory");
  if (hello_.memory_bytes == 0 || hello_.memory_bytes > static_cast<uint64_t>(INT64_MAX)) {
    return Break("the daemon's memory has an impossible size");
  }
  const auto bytes = static_cast<size_t>(hello_.memory_bytes);
  TENURE_RETURN_IF_ERROR(CheckSealed(memory.get(), bytes));
  TENURE_ASSIGN_OR_RETURN(memory_, SharedMapping::Map(memory.get(), bytes));
  return absl::OkStatus();
}

absl::Status ClientSession::Begin(MonotonicTime deadline) {
  if (broken()) return Unavailable("the connection to the daemon is lost");
  // Nothing has been sent, so the session stays whole.
  if (clock_.Now() >= deadline) return Unavailable("the daemon was busy with other calls until the deadline");
  sending_.clear();
  return absl::OkStatus();
}

absl::Status ClientSession::Send(MonotonicTime deadline) {
  for (size_t sent = 0; sent < sending_.size();) {
    const ssize_t size = send(socket_.get(), sending_.data() + sent, sending_.size() - sent, MSG_NOSIGNAL);
    if (size >= 0) {
      sent += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      TENURE_RETURN_IF_ERROR(WaitFor(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Break(std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::Status ClientSession::Receive(MonotonicTime deadline, uint16_t expected_type) {
  received_.Clear();
  size_t wanted = FrameHeader::kBytes;
  while (received_.bytes().size() < wanted) {
    TENURE_RETURN_IF_ERROR(ReceiveSome(deadline, nullptr));
    const absl::StatusOr<std::optional<FrameHeader>> header = ParseHeader(received_.bytes());
    if (!header.ok()) return Break(Message(header.status()));
    if (header->has_value()) wanted = FrameHeader::kBytes + (*header)->body_bytes;
  }
  return CheckReply(expected_type);
}

absl::Status ClientSession::ReceiveSome(MonotonicTime deadline, FileDescriptor* memory) {
  const LookAgain look(clock_);
  while (true) {
    const ssize_t size = ReceiveNow(memory);
    if (size > 0) return absl::OkStatus();
    if (size == 0) return Break("the daemon has ended or cut this client off");
    if (errno != EAGAIN && errno != EINTR) return Break(std::strerror(errno));
    if (!look.Worthwhile()) TENURE_RETURN_IF_ERROR(WaitFor(POLLIN, deadline));
  }
}

// As recvmsg; takes a descriptor that came along when there is a place for it.
ssize_t ClientSession::ReceiveNow(FileDescriptor* memory) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  const std::span<std::byte> room = received_.Room(kReceiveStepBytes);
  iovec bytes{.iov_base = room.data(), .iov_len = room.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (memory != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const ssize_t size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (size <= 0) return size;
  received_.Filled(static_cast<size_t>(size));
  if (memory == nullptr) return size;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    *memory = FileDescriptor(fd);
  }
  return size;
}

absl::Status ClientSession::WaitFor(short events, MonotonicTime deadline) {
  for (;;) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) return Break("the daemon did not answer within the deadline");
    const int timeout_ms = static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, INT32_MAX));
    pollfd watched{.fd = socket_.get(), .events = events, .revents = 0};
    const int ready = poll(&watched, 1, timeout_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Break(std::strerror(errno));
  }
}

absl::Status ClientSession::CheckReply(uint16_t expected_type) {
  const std::optional<FrameHeader> header = *ParseHeader(received_.bytes());
  if (header->request != last_request_ || received_.bytes().size() != FrameHeader::kBytes + header->body_bytes) {
    // An error about a header that could not be read carries no number.
    if (header->type != ErrorReply::kType || header->request != 0) return Break("the daemon answered another question");
  }
  if (header->type == expected_type) return absl::OkStatus();
  ErrorReply error;
  if (header->type != ErrorReply::kType || !DecodeBody(ReplyBody(), error)) {
    return Break("the daemon's answer is of another kind");
  }
  absl::Status status = ToStatus(error);
  if (absl::IsFailedPrecondition(status) || absl::IsDataLoss(status)) MarkBroken();
  return status;
}

bool ClientSession::HungUp() const {
  pollfd watched{.fd = fd(), .events = POLLRDHUP, .revents = 0};
  return poll(&watched, 1, 0) > 0;
}

void ClientSession::MarkBroken() {
  broken_.store(true, std::memory_order_release);
  on_broken_();
}

absl::Status ClientSession::Break(std::string_view why) {
  MarkBroken();
  return Unavailable("the connection to the daemon is lost: {}", why);
}

}  // namespace tenure::daemon
