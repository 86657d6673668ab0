// Any frames to a prefill worker's router: each message of one frame has its answer, each other one is refused, and the
// listener lives. The first byte of a frame says how long it is and whether another one of the message follows.
#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/handoff/router.h"
#include "tenure/handoff/zmq_socket.h"

namespace tenure::handoff {
namespace {

constexpr int kPatienceMilliseconds = 60'000;

// One for all inputs; the connection too, since each costs descriptors until ZeroMQ closes them.
class Listener {
 public:
  Listener()
      : router_(Router::Start({.malformed_reply = "malformed"},
                              [](std::string, std::string bytes) { return std::optional<std::string>(bytes); })
                    .value()),
        context_(8),
        peer_(ZmqSocket::Create(context_, {.kind = ZmqSocketOptions::Kind::kDealer, .message_bytes_max = 1 << 20})
                  .value()) {
    TENURE_CHECK(peer_.Connect(router_->address()).ok());
  }

  void Send(const std::vector<std::string_view>& frames) {
    while (!peer_.Poll().out) Wait();
    TENURE_CHECK(peer_.Send(frames) == ZmqSocket::Sent::kYes);
  }
  ZmqMessage Receive() {
    while (!peer_.Poll().in) Wait();
    return peer_.Receive().value();
  }

 private:
  void Wait() {
    pollfd watched = {.fd = peer_.fd(), .events = POLLIN, .revents = 0};
    TENURE_CHECK(poll(&watched, 1, kPatienceMilliseconds) > 0);
  }

  const std::unique_ptr<Router> router_;
  const ZmqContext context_;
  ZmqSocket peer_;
};

void Run(std::string_view bytes) {
  static Listener& listener = *new Listener;
  while (!bytes.empty()) {
    std::vector<std::string_view> frames;
    for (bool more = true; more && !bytes.empty();) {
      const auto head = static_cast<uint8_t>(bytes.front());
      bytes.remove_prefix(1);
      more = (head & 0x80) != 0;
      frames.push_back(bytes.substr(0, head & 0x7F));
      bytes.remove_prefix(frames.back().size());
    }
    listener.Send(frames);
    const ZmqMessage answer = listener.Receive();
    const bool from_req = frames.size() == 2 && frames[0].empty();
    TENURE_CHECK(answer.num_frames == (from_req ? 2u : 1u));
    TENURE_CHECK(answer.frames.back() == (frames.size() == 1 ? frames[0] : "malformed"));
  }
}

}  // namespace
}  // namespace tenure::handoff

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenure::handoff::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
