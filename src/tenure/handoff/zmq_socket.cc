#include "tenure/handoff/zmq_socket.h"

#include <zmq.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::handoff {
namespace {

// A host that vanished without a word is noticed after 25 s; a process that only stands still keeps its connections.
constexpr int kKeepAliveIdleSeconds = 10;
constexpr int kKeepAliveIntervalSeconds = 5;
constexpr int kKeepAliveProbes = 3;
// Each message comes over a connection of its own, hundreds in a step; with the library's 100 the kernel drops some and
// they come a second later.
constexpr int kBacklog = 4096;

// Our own options and values: a failure is a defect of ours.
void SetInt(void* socket, int option, int value) {
  TENURE_CHECK(zmq_setsockopt(socket, option, &value, sizeof value) == 0);
}

absl::Status SetKey(void* socket, int option, const std::string& key) {
  if (zmq_setsockopt(socket, option, key.c_str(), key.size()) == 0) return absl::OkStatus();
  return InvalidArgument("a CURVE key was refused: {}; give 40 characters of Z85", zmq_strerror(zmq_errno()));
}

absl::Status SetKeys(void* socket, const ZmqSocketOptions& options) {
  if (!options.curve) return absl::OkStatus();
  if (options.kind == ZmqSocketOptions::Kind::kRouter) {
    SetInt(socket, ZMQ_CURVE_SERVER, 1);
    return SetKey(socket, ZMQ_CURVE_SECRETKEY, options.curve->secret_key);
  }
  TENURE_CHECK(options.curve_server_key.has_value());
  TENURE_RETURN_IF_ERROR(SetKey(socket, ZMQ_CURVE_PUBLICKEY, options.curve->public_key));
  TENURE_RETURN_IF_ERROR(SetKey(socket, ZMQ_CURVE_SECRETKEY, options.curve->secret_key));
  return SetKey(socket, ZMQ_CURVE_SERVERKEY, *options.curve_server_key);
}

}  // namespace

ZmqContext::ZmqContext(size_t sockets_max) : context_(zmq_ctx_new()) {
  TENURE_CHECK(context_ != nullptr);
  TENURE_CHECK(zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, static_cast<int>(sockets_max)) == 0);
}

ZmqContext::~ZmqContext() {
  while (zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
  }
}

absl::StatusOr<ZmqSocket> ZmqSocket::Create(const ZmqContext& context, const ZmqSocketOptions& options) {
  const bool router = options.kind == ZmqSocketOptions::Kind::kRouter;
  void* raw = zmq_socket(context.get(), router ? ZMQ_ROUTER : ZMQ_DEALER);
  if (raw == nullptr) {
    return Unavailable("no ZeroMQ socket: {}; raise the limit of open files", zmq_strerror(zmq_errno()));
  }
  ZmqSocket socket(raw);
  SetInt(raw, ZMQ_LINGER, static_cast<int>(absl::ToInt64Milliseconds(options.linger)));
  SetInt(raw, ZMQ_IPV6, options.ipv6 ? 1 : 0);
  // Without it a send to a peer that is gone is lost without a word.
  SetInt(raw, router ? ZMQ_ROUTER_MANDATORY : ZMQ_IMMEDIATE, 1);
  // A new connection in the place of a broken one would hide that answers come no more.
  if (!router) SetInt(raw, ZMQ_RECONNECT_IVL, -1);
  SetInt(raw, ZMQ_BACKLOG, kBacklog);
  SetInt(raw, ZMQ_TCP_KEEPALIVE, 1);
  SetInt(raw, ZMQ_TCP_KEEPALIVE_IDLE, kKeepAliveIdleSeconds);
  SetInt(raw, ZMQ_TCP_KEEPALIVE_INTVL, kKeepAliveIntervalSeconds);
  SetInt(raw, ZMQ_TCP_KEEPALIVE_CNT, kKeepAliveProbes);
  const int64_t bytes_max = static_cast<int64_t>(options.message_bytes_max);
  TENURE_CHECK(zmq_setsockopt(raw, ZMQ_MAXMSGSIZE, &bytes_max, sizeof bytes_max) == 0);
  TENURE_RETURN_IF_ERROR(SetKeys(raw, options));
  return socket;
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  ZmqSocket moved(std::move(other));
  std::swap(socket_, moved.socket_);
  return *this;
}

ZmqSocket::~ZmqSocket() {
  if (socket_ != nullptr) zmq_close(socket_);
}

absl::Status ZmqSocket::Bind(const std::string& endpoint) {
  if (zmq_bind(socket_, endpoint.c_str()) == 0) return absl::OkStatus();
  return InvalidArgument("{} cannot be listened on ({}); give an address of this machine and a free port", endpoint,
                         zmq_strerror(zmq_errno()));
}

absl::Status ZmqSocket::Connect(const std::string& endpoint) {
  if (zmq_connect(socket_, endpoint.c_str()) == 0) return absl::OkStatus();
  return InvalidArgument("{} is no address to connect to ({}); register tcp://IP:PORT", endpoint,
                         zmq_strerror(zmq_errno()));
}

std::string ZmqSocket::LastEndpoint() const {
  std::array<char, 512> endpoint{};
  size_t size = endpoint.size();
  TENURE_CHECK(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, endpoint.data(), &size) == 0);
  return endpoint.data();
}

int ZmqSocket::fd() const {
  int fd = -1;
  size_t size = sizeof fd;
  TENURE_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0);
  return fd;
}

ZmqReady ZmqSocket::Poll() const {
  int events = 0;
  size_t size = sizeof events;
  while (zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) != 0) TENURE_CHECK(zmq_errno() == EINTR);
  return {.in = (events & ZMQ_POLLIN) != 0, .out = (events & ZMQ_POLLOUT) != 0};
}

std::optional<ZmqMessage> ZmqSocket::Receive() {
  ZmqMessage message;
  zmq_msg_t frame;
  zmq_msg_init(&frame);
  bool more = true;
  while (more) {
    if (zmq_msg_recv(&frame, socket_, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() == EINTR) continue;
      break;  // Nothing there; the frames of a message are there all or none.
    }
    if (message.frames.size() < ZmqMessage::kFramesMax) {
      message.frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    }
    ++message.num_frames;
    more = zmq_msg_more(&frame) != 0;
  }
  zmq_msg_close(&frame);
  if (message.num_frames == 0) return std::nullopt;
  return message;
}

ZmqSocket::Sent ZmqSocket::Send(const std::vector<std::string_view>& frames) {
  for (size_t i = 0; i < frames.size();) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) < 0) {
      if (zmq_errno() == EINTR) continue;
      // Only the first frame can fail: it picks the peer and takes the room.
      return zmq_errno() == EAGAIN ? Sent::kFull : Sent::kNoPeer;
    }
    ++i;
  }
  return Sent::kYes;
}

}  // namespace tenure::handoff
