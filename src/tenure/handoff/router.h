// P's end of the side channel: takes the messages of all decode workers and sends them answers (pd_protocol spec §3).
//
// A ROUTER on one TCP address. A peer's message is one frame; whatever else comes (a REQ's three frames) is counted and
// answered with an error in one frame, or in a REQ's form. A frame beyond the maximum ends its connection before any
// memory is taken. Nothing that peers send ends the listener.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::handoff {

// Of a message, either way: 65,536 requests with a few blocks each, or a layout of thousands of regions, is below 20
// MB.
inline constexpr size_t kMessageBytesMax = size_t{64} << 20;

struct RouterOptions {
  std::string host = "127.0.0.1";  // An IP address of this machine, IPv6 without brackets.
  int port = 0;                    // 0: any free one.
  size_t message_bytes_max = kMessageBytesMax;
  size_t replies_waiting_max = 65'536;                         // For the thread to send them; further ones are dropped.
  std::string malformed_reply = {};                            // To a message that is not of one frame; empty: none.
  std::optional<std::string> curve_secret_key = std::nullopt;  // P's; none: in the clear.
};

// Since the start.
struct RouterStats {
  int64_t messages = 0;
  int64_t malformed_messages = 0;  // Not of one frame.
  int64_t replies = 0;
  int64_t dropped_replies = 0;  // Their peer was gone or took none, or too many waited.
};

class Router {
 public:
  // Called on the router's thread, with what to name the peer by in Reply; must not block. What it returns is sent to
  // the peer at once.
  using OnMessage = std::function<std::optional<std::string>(std::string peer, std::string message)>;

  // Listens when it returns. InvalidArgument: the address cannot be listened on, or a key is none.
  static absl::StatusOr<std::unique_ptr<Router>> Start(const RouterOptions& options, OnMessage on_message);
  // No call of on_message runs or comes after it. Replies that were given have a second more to leave.
  ~Router();

  // tcp://IP:PORT, an IPv6 address in brackets.
  const std::string& address() const;
  // Any thread, never blocks. In the order of the calls for one peer.
  void Reply(std::string peer, std::string message);
  // Any thread.
  RouterStats stats() const;

 private:
  class Impl;
  explicit Router(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::handoff
