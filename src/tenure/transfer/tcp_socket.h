// Sockets of the tcp transport: non-blocking, one owner each, and the set of them that a thread waits for.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/transfer/socket_address.h"

namespace tenure::transfer {

// Move-only. Closing ends the connection also where a process that was forked has the descriptor too.
class TcpSocket {
 public:
  // A peer that the network does not reach any more, or that takes nothing of what is sent, is an error after this.
  static constexpr absl::Duration kSilenceMax = absl::Seconds(20);

  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~TcpSocket();

  // Unavailable: the system refuses. Connecting has begun when this returns; the socket can be written to or has an
  // Error() when it is over.
  static absl::StatusOr<TcpSocket> Listen(const SocketAddress& address);
  static absl::StatusOr<TcpSocket> Connect(const SocketAddress& address);
  // The next connection of a listening socket; with errno set, one that is not valid().
  TcpSocket Accept() const;

  bool valid() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  uint16_t port() const;  // That a listening socket has.
  int Error() const;      // errno of what has ended the connection, 0 for nothing; cleared by asking.
  // As the system calls; a signal interrupts none of them.
  ssize_t Read(iovec* parts, int count) const;
  ssize_t Write(iovec* parts, int count) const;
  // The peer has read all that it will get.
  void EndWriting() const { shutdown(fd_, SHUT_WR); }
  // Drops what is sent and has not left; the peer learns of an error.
  void Abort() const;

 private:
  void SetOptions() const;

  int fd_ = -1;
};

// Who is told of a socket's events (EPOLLIN, ...).
class TcpHandler {
 public:
  virtual ~TcpHandler() = default;
  virtual void OnEvents(uint32_t events) = 0;
};

// What a thread waits for. Of that thread.
class TcpPoller {
 public:
  TcpPoller();
  ~TcpPoller();
  TcpPoller(const TcpPoller&) = delete;
  TcpPoller& operator=(const TcpPoller&) = delete;

  bool valid() const { return fd_ >= 0; }
  // `handler` outlives its events: until Remove, and until the Wait that is running has returned. False when the system
  // refuses.
  bool Add(int fd, uint32_t events, TcpHandler& handler) const;
  void Change(int fd, uint32_t events, TcpHandler& handler) const;
  void Remove(int fd) const;
  // Calls handlers; returns at once when some had events, otherwise after `longest`.
  void Wait(absl::Duration longest) const;

 private:
  const int fd_;
};

}  // namespace tenure::transfer
