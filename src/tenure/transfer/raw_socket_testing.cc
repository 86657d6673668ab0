#include "tenure/transfer/raw_socket_testing.h"

#include <poll.h>

#include <array>
#include <cerrno>

#include "tenure/base/check.h"
#include "tenure/transfer/socket_address.h"

namespace tenure::transfer {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

bool Await(const TcpSocket& socket, int16_t events, absl::Duration patience = kPatience) {
  pollfd entry = {socket.fd(), events, 0};
  return poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) == 1;
}

}  // namespace

RawSocket::RawSocket(const std::string& host, uint16_t port)
    : socket_(TcpSocket::Connect(NumericAddress(host, port).value()).value()) {
  TENURE_CHECK(Await(socket_, POLLOUT));
}

RawSocket::RawSocket(const TcpSocket& listener) {
  TENURE_CHECK(Await(listener, POLLIN));
  socket_ = listener.Accept();
  TENURE_CHECK(socket_.valid());
}

size_t RawSocket::Send(std::string_view bytes) const {
  iovec all = {const_cast<char*>(bytes.data()), bytes.size()};
  const ssize_t size = socket_.Write(&all, 1);
  return size > 0 ? static_cast<size_t>(size) : 0;
}

std::string RawSocket::Receive(size_t size) const {
  std::string bytes;
  while (bytes.size() < size && Await(socket_, POLLIN)) {
    std::string next(size - bytes.size(), '\0');
    iovec all = {next.data(), next.size()};
    const ssize_t read = socket_.Read(&all, 1);
    if (read == 0 || (read < 0 && errno != EAGAIN)) break;
    if (read > 0) bytes += next.substr(0, static_cast<size_t>(read));
  }
  return bytes;
}

bool RawSocket::Ended(absl::Duration patience) const {
  while (Await(socket_, POLLIN, patience)) {
    std::array<char, 4096> bytes;
    iovec all = {bytes.data(), bytes.size()};
    const ssize_t read = socket_.Read(&all, 1);
    if (read == 0 || (read < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

}  // namespace tenure::transfer
