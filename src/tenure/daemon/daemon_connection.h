// One client's socket at the daemon: bytes in, messages to its session, answers out. Never blocks. One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tenure/daemon/daemon_session.h"
#include "tenure/daemon/file_descriptor.h"
#include "tenure/daemon/peer.h"
#include "tenure/daemon/receive_buffer.h"

namespace tenure::daemon {

class DaemonConnection {
 public:
  enum class State : uint8_t {
    kOpen,
    kCutOff,  // Told to end and no longer read, but it may still copy: kept until it is gone.
    kGone,    // Its end of the socket is closed.
  };

  // `memory_fd` goes out with the answer to hello.
  DaemonConnection(FileDescriptor socket, Peer peer, int memory_fd, store::EmbeddedPool& pool, const Clock& clock,
                   DaemonState& state)
      : socket_(std::move(socket)), peer_(std::move(peer)), memory_fd_(memory_fd), session_(pool, clock, state) {}

  // One turn: reads what is there, at most kReadBytesMax, and handles messages up to the first that is answered, so
  // that no client, whatever it asks for, keeps others waiting for more than one message.
  void Read();
  // Whether a whole message is left for the next turn.
  bool has_more() const { return state_ == State::kOpen && has_more_; }
  // Sends what the client takes.
  void Write();

  int fd() const { return socket_.get(); }
  const Peer& peer() const { return peer_; }
  State state() const { return state_; }
  size_t unsent_bytes() const { return unsent_.size() - sent_; }
  const ClientHoldings& holdings() const { return session_.holdings(); }

 private:
  static constexpr size_t kReadBytesMax = size_t{64} << 10;

  void HandleMessages();
  // Nothing: no whole message. Otherwise whether it was answered.
  std::optional<bool> HandleOne();
  void CutOff();
  ssize_t SendSome();

  FileDescriptor socket_;
  Peer peer_;
  const int memory_fd_;
  DaemonSession session_;
  State state_ = State::kOpen;
  ReceiveBuffer received_;
  std::vector<std::byte> unsent_;
  size_t sent_ = 0;  // Bytes at the front of `unsent_` that are gone.
  bool has_more_ = false;
  bool send_memory_ = false;
  bool over_ = false;  // Cut off once the last answer is out.
};

}  // namespace tenure::daemon
