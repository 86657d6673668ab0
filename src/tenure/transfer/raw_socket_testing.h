// A socket that says what it likes to a transport: a stranger, a writer that breaks off, a receiver of nonsense. For
// tests; CHECKs what cannot fail on loopback, and blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/transfer/tcp_socket.h"

namespace tenure::transfer {

class RawSocket {
 public:
  // Connects.
  RawSocket(const std::string& host, uint16_t port);
  // The next connection of a listener.
  explicit RawSocket(const TcpSocket& listener);
  RawSocket(RawSocket&&) = default;

  // Without waiting for it to be read; how much of it the system has taken.
  size_t Send(std::string_view bytes) const;
  // Waits for as many, less only at the end of the connection.
  std::string Receive(size_t size) const;
  // Waits for the end of the connection; whether it came.
  bool Ended(absl::Duration patience = absl::Seconds(30)) const;
  void HalfClose() const { socket_.EndWriting(); }
  void Reset() const { socket_.Abort(); }

 private:
  TcpSocket socket_;
};

}  // namespace tenure::transfer
