#include "tenure/transfer/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

// An idle connection is asked after this, and then as often.
constexpr int kProbeSeconds = 5;

// Events that one Wait hands out.
constexpr int kEventsMax = 64;

void Set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); }

absl::StatusOr<TcpSocket> Create(const SocketAddress& address) {
  TcpSocket made(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.valid()) return Unavailable("the system gives no socket: {}", std::strerror(errno));
  return made;
}

}  // namespace

TcpSocket::~TcpSocket() {
  if (fd_ < 0) return;
  shutdown(fd_, SHUT_RDWR);
  close(fd_);
}

absl::StatusOr<TcpSocket> TcpSocket::Listen(const SocketAddress& address) {
  TENURE_ASSIGN_OR_RETURN(TcpSocket made, Create(address));
  if (bind(made.fd_, address.get(), address.size) != 0 || listen(made.fd_, SOMAXCONN) != 0) {
    const int error = errno;
    const std::string host = HostOf(address);
    if (error == EADDRNOTAVAIL) return InvalidArgument("host is {}, which is no address of this machine", host);
    return Unavailable("listening at {}: {}", host, std::strerror(error));
  }
  return made;
}

absl::StatusOr<TcpSocket> TcpSocket::Connect(const SocketAddress& address) {
  TENURE_ASSIGN_OR_RETURN(TcpSocket made, Create(address));
  made.SetOptions();
  if (connect(made.fd_, address.get(), address.size) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Unavailable("connecting to the peer: {}", std::strerror(errno));
  }
  return made;
}

TcpSocket TcpSocket::Accept() const {
  while (true) {
    TcpSocket accepted(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (accepted.valid()) accepted.SetOptions();
    return accepted;
  }
}

void TcpSocket::SetOptions() const {
  Set(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd_, IPPROTO_TCP, TCP_KEEPIDLE, kProbeSeconds);
  Set(fd_, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  Set(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(kSilenceMax)));
}

uint16_t TcpSocket::port() const {
  SocketAddress own;
  own.size = sizeof(own.storage);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0) return 0;
  return PortOf(own);
}

int TcpSocket::Error() const {
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

ssize_t TcpSocket::Read(iovec* parts, int count) const {
  while (true) {
    const ssize_t size = readv(fd_, parts, count);
    if (size >= 0 || errno != EINTR) return size;
  }
}

ssize_t TcpSocket::Write(iovec* parts, int count) const {
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<size_t>(count);
  while (true) {
    const ssize_t size = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (size >= 0 || errno != EINTR) return size;
  }
}

void TcpSocket::Abort() const {
  sockaddr nobody = {};
  nobody.sa_family = AF_UNSPEC;
  connect(fd_, &nobody, sizeof(nobody));  // Cannot fail in a way that matters: the socket is closed next.
}

TcpPoller::TcpPoller() : fd_(epoll_create1(EPOLL_CLOEXEC)) {}

TcpPoller::~TcpPoller() {
  if (fd_ >= 0) close(fd_);
}

bool TcpPoller::Add(int fd, uint32_t events, TcpHandler& handler) const {
  epoll_event event = {events, {.ptr = &handler}};
  return epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void TcpPoller::Change(int fd, uint32_t events, TcpHandler& handler) const {
  epoll_event event = {events, {.ptr = &handler}};
  epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
}

void TcpPoller::Remove(int fd) const { epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr); }

void TcpPoller::Wait(absl::Duration longest) const {
  // Rounded up, so that a wait for a deadline does not end just before it, again and again.
  const int64_t milliseconds = longest <= absl::ZeroDuration() ? 0 : absl::ToInt64Milliseconds(longest) + 1;
  std::array<epoll_event, kEventsMax> events;
  const int count = epoll_wait(fd_, events.data(), kEventsMax, static_cast<int>(milliseconds));
  for (int i = 0; i < count; ++i)
    static_cast<TcpHandler*>(events[static_cast<size_t>(i)].data.ptr)->OnEvents(events[static_cast<size_t>(i)].events);
}

}  // namespace tenure::transfer
