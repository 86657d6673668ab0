// ZeroMQ's sockets as this layer uses them: owned, never blocking, with errors as values. One thread a socket.
//
// Readiness: `fd` becomes readable when something may have changed, once, and not again before `Poll` was called; so
// after each wake, and after each Send or Receive, Poll until it says neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/handoff/curve_keys.h"

namespace tenure::handoff {

class ZmqContext {
 public:
  explicit ZmqContext(size_t sockets_max);
  // After all of its sockets; waits for their linger.
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  void* get() const { return context_; }

 private:
  void* context_;
};

struct ZmqSocketOptions {
  enum class Kind { kRouter, kDealer };
  Kind kind;
  bool ipv6 = false;
  size_t message_bytes_max = 0;                   // Of a frame that comes in; a longer one ends its connection.
  absl::Duration linger = absl::ZeroDuration();   // How long what was sent may keep the context at its end.
  std::optional<CurveKeys> curve = std::nullopt;  // This side's; a kRouter needs the secret one alone.
  std::optional<std::string> curve_server_key = std::nullopt;  // kDealer: P's public key.
};

struct ZmqReady {
  bool in = false;
  bool out = false;
};

struct ZmqMessage {
  static constexpr size_t kFramesMax = 2;
  std::vector<std::string> frames;  // The first kFramesMax.
  size_t num_frames = 0;            // All.
};

class ZmqSocket {
 public:
  // A kDealer makes one connection, and is ready to send only while it stands. What came in together with the end of
  // the connection may be lost. A kRouter sends to peers that it knows. Unavailable: no descriptor or too many sockets.
  static absl::StatusOr<ZmqSocket> Create(const ZmqContext& context, const ZmqSocketOptions& options);
  ZmqSocket(ZmqSocket&& other) noexcept;
  ZmqSocket& operator=(ZmqSocket&& other) noexcept;
  ~ZmqSocket();

  // "tcp://ADDRESS:PORT", to bind with "*" for any port. InvalidArgument with the endpoint.
  absl::Status Bind(const std::string& endpoint);
  absl::Status Connect(const std::string& endpoint);
  // What Bind has become, with its port.
  std::string LastEndpoint() const;

  int fd() const;
  ZmqReady Poll() const;

  std::optional<ZmqMessage> Receive();
  enum class Sent { kYes, kFull, kNoPeer };
  Sent Send(const std::vector<std::string_view>& frames);

 private:
  explicit ZmqSocket(void* socket) : socket_(socket) {}

  void* socket_ = nullptr;
};

}  // namespace tenure::handoff
