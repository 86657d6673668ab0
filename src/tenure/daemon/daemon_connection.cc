#include "tenure/daemon/daemon_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "tenure/base/status.h"

namespace tenure::daemon {

void DaemonConnection::Read() {
  if (state_ != State::kOpen) return;
  if (!has_more_) {
    const std::span<std::byte> room = received_.Room(kReadBytesMax);
    const ssize_t size = recv(socket_.get(), room.data(), room.size(), 0);
    const bool nothing_yet = size < 0 && (errno == EAGAIN || errno == EINTR);
    if (size > 0) received_.Filled(static_cast<size_t>(size));
    if (size == 0 || (size < 0 && !nothing_yet)) {
      state_ = State::kGone;
      return;
    }
  }
  HandleMessages();
}

void DaemonConnection::HandleMessages() {
  std::optional<bool> answered = false;
  while (!over_ && answered.has_value() && !*answered) answered = HandleOne();
  // Whether another one is whole is found out in the next turn.
  has_more_ = !over_ && answered.has_value() && received_.bytes().size() >= FrameHeader::kBytes;
  if (over_) received_.Clear();
  Write();
}

std::optional<bool> DaemonConnection::HandleOne() {
  const std::span<const std::byte> rest = received_.bytes();
  const absl::StatusOr<std::optional<FrameHeader>> header = ParseHeader(rest);
  if (!header.ok()) {
    AppendFrame(ErrorReply{.code = ErrorCode::kProtocol, .text = std::string(Message(header.status()))}, 0, unsent_);
    over_ = true;
    return true;
  }
  if (!header->has_value() || rest.size() - FrameHeader::kBytes < (*header)->body_bytes) return std::nullopt;
  const size_t unsent_before = unsent_.size();
  const DaemonSession::Next next =
      session_.Handle(**header, rest.subspan(FrameHeader::kBytes, (*header)->body_bytes), unsent_);
  received_.DropFront(FrameHeader::kBytes + (*header)->body_bytes);
  send_memory_ = send_memory_ || next == DaemonSession::Next::kSendMemory;
  over_ = over_ || next == DaemonSession::Next::kOver;
  return unsent_.size() > unsent_before;
}

void DaemonConnection::Write() {
  if (state_ != State::kOpen) return;
  while (unsent_bytes() > 0) {
    const ssize_t size = SendSome();
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) {
      // Nobody reads any more; whether the client is gone its own end of the socket tells.
      CutOff();
      return;
    }
    sent_ += static_cast<size_t>(size);
    send_memory_ = false;
  }
  if (unsent_bytes() == 0) {
    unsent_.clear();
    sent_ = 0;
  }
  if (unsent_bytes() > kUnsentBytesMax || (over_ && unsent_bytes() == 0)) CutOff();
}

// The descriptor goes with the first byte of the answer to hello, which is the first byte that is ever sent.
ssize_t DaemonConnection::SendSome() {
  iovec bytes{.iov_base = unsent_.data() + sent_, .iov_len = unsent_bytes()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (send_memory_) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory_fd_, sizeof(int));
  }
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void DaemonConnection::CutOff() {
  state_ = State::kCutOff;
  shutdown(socket_.get(), SHUT_WR);
  received_ = ReceiveBuffer();
  unsent_ = {};
  sent_ = 0;
}

}  // namespace tenure::daemon
