#include "tenure/handoff/router.h"

#include <poll.h>

#include <array>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/base/wake_event.h"
#include "tenure/handoff/zmq_socket.h"

namespace tenure::handoff {
namespace {

constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr int kMessagesInARow = 64;  // Then the replies have their turn.

bool IsIpv6(const std::string& host) { return host.find(':') != std::string::npos; }

std::string Endpoint(const RouterOptions& options) {
  const std::string host = IsIpv6(options.host) ? fmt::format("[{}]", options.host) : options.host;
  return fmt::format("tcp://{}:{}", host, options.port == 0 ? "*" : std::to_string(options.port));
}

}  // namespace

class Router::Impl {
 public:
  Impl(const RouterOptions& options, OnMessage on_message)
      : options_(options), on_message_(std::move(on_message)), context_(/*sockets_max=*/8) {}
  ~Impl();

  absl::Status Start();
  const std::string& address() const { return address_; }
  void Reply(std::string peer, std::string message);
  RouterStats stats() const;

 private:
  struct Waiting {
    std::string peer;
    std::string message;
  };

  void Run();
  void SendReplies();
  void SendReply(const std::string& peer, const std::string& message);
  void RefuseMalformed(const ZmqMessage& message);
  bool ReceiveSome();

  const RouterOptions options_;
  const OnMessage on_message_;
  const ZmqContext context_;
  const WakeEvent wake_;
  std::optional<ZmqSocket> socket_;  // The thread's own once it runs.
  std::string address_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> messages_{0};
  std::atomic<int64_t> malformed_messages_{0};
  std::atomic<int64_t> replies_{0};
  std::atomic<int64_t> dropped_replies_{0};
  Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

absl::Status Router::Impl::Start() {
  if (!wake_.valid()) return Unavailable("no descriptor for the side channel; raise the limit of open files");
  if (options_.port < 0 || options_.port > 65'535) return InvalidArgument("port is {}; use 0 to 65535", options_.port);
  std::optional<CurveKeys> curve;
  if (options_.curve_secret_key) {
    TENURE_RETURN_IF_ERROR(CheckCurveKey("the secret key", *options_.curve_secret_key));
    curve = CurveKeys{.public_key = {}, .secret_key = *options_.curve_secret_key};
  }
  TENURE_ASSIGN_OR_RETURN(socket_, ZmqSocket::Create(context_, {.kind = ZmqSocketOptions::Kind::kRouter,
                                                                .ipv6 = IsIpv6(options_.host),
                                                                .message_bytes_max = options_.message_bytes_max,
                                                                .linger = kLinger,
                                                                .curve = std::move(curve)}));
  TENURE_RETURN_IF_ERROR(socket_->Bind(Endpoint(options_)));
  address_ = socket_->LastEndpoint();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

Router::Impl::~Impl() {
  stop_.store(true);
  wake_.Wake();
  if (thread_.joinable()) thread_.join();
}

void Router::Impl::Reply(std::string peer, std::string message) {
  {
    MutexLock lock(mutex_);
    if (waiting_.size() >= options_.replies_waiting_max) {
      ++dropped_replies_;
      return;
    }
    waiting_.push_back({std::move(peer), std::move(message)});
  }
  wake_.Wake();
}

RouterStats Router::Impl::stats() const {
  return {.messages = messages_.load(),
          .malformed_messages = malformed_messages_.load(),
          .replies = replies_.load(),
          .dropped_replies = dropped_replies_.load()};
}

void Router::Impl::Run() {
  std::array<pollfd, 2> watched = {
      {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}, {.fd = socket_->fd(), .events = POLLIN, .revents = 0}}};
  while (true) {
    const bool stopping = stop_.load();
    wake_.Clear();
    SendReplies();
    if (stopping) return;
    if (ReceiveSome()) continue;
    // A failure is an interruption; the loop looks again.
    if (poll(watched.data(), watched.size(), -1) < 0) continue;
  }
}

void Router::Impl::SendReplies() {
  std::deque<Waiting> replies;
  {
    MutexLock lock(mutex_);
    replies.swap(waiting_);
  }
  for (const Waiting& reply : replies) SendReply(reply.peer, reply.message);
}

void Router::Impl::SendReply(const std::string& peer, const std::string& message) {
  const bool sent = socket_->Send({peer, message}) == ZmqSocket::Sent::kYes;
  ++(sent ? replies_ : dropped_replies_);
}

void Router::Impl::RefuseMalformed(const ZmqMessage& message) {
  ++malformed_messages_;
  if (options_.malformed_reply.empty()) return;
  // A REQ puts an empty frame before its message, and hears only what has one too.
  const bool from_req = message.num_frames == 3 && message.frames[1].empty();
  std::vector<std::string_view> frames = {message.frames[0]};
  if (from_req) frames.push_back("");
  frames.push_back(options_.malformed_reply);
  const bool sent = socket_->Send(frames) == ZmqSocket::Sent::kYes;
  ++(sent ? replies_ : dropped_replies_);
}

// Whether there may be more.
bool Router::Impl::ReceiveSome() {
  for (int i = 0; i < kMessagesInARow; ++i) {
    if (!socket_->Poll().in) return false;
    std::optional<ZmqMessage> message = socket_->Receive();
    if (!message) continue;
    if (message->num_frames != 2) {
      RefuseMalformed(*message);
      continue;
    }
    ++messages_;
    const std::optional<std::string> answer = on_message_(message->frames[0], std::move(message->frames[1]));
    if (answer) SendReply(message->frames[0], *answer);
  }
  return true;
}

absl::StatusOr<std::unique_ptr<Router>> Router::Start(const RouterOptions& options, OnMessage on_message) {
  auto impl = std::make_unique<Impl>(options, std::move(on_message));
  TENURE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Router>(new Router(std::move(impl)));
}

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

const std::string& Router::address() const { return impl_->address(); }
void Router::Reply(std::string peer, std::string message) { impl_->Reply(std::move(peer), std::move(message)); }
RouterStats Router::stats() const { return impl_->stats(); }

}  // namespace tenure::handoff
