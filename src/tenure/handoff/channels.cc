#include "tenure/handoff/channels.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/base/wake_event.h"
#include "tenure/handoff/zmq_socket.h"
#include "tenure/pd/worker_address.h"

namespace tenure::handoff {
namespace {

using pd::ChannelId;
using pd::ChannelMessage;

constexpr size_t kEventsAtOnce = 256;
constexpr size_t kAddressShownMax = 200;
constexpr int kAnswersInARow = 64;                     // Of one channel; then the others have their turn.
constexpr absl::Duration kLookMax = absl::Seconds(1);  // The clock may be moved by hand.

}  // namespace

class Channels::Impl {
 public:
  Impl(const ChannelsOptions& options, const Clock& clock, Events events)
      : options_(options),
        clock_(clock),
        events_(std::move(events)),
        context_(options.channels_max + 8),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Impl();

  absl::Status Start();
  void Send(ChannelMessage message);
  void Close(ChannelId channel);
  size_t num_open() const { return num_open_.load(); }

 private:
  using Order = std::variant<ChannelMessage, ChannelId>;  // Send, Close.
  struct Channel {
    ZmqSocket socket;
    std::string address;
    std::string bytes;  // Until they are sent.
    MonotonicTime deadline;
    MonotonicTime due;  // In `due_`.
    bool sent = false;
  };
  using Open = std::map<ChannelId, Channel>;

  void Run();
  bool CarryOut();
  void OpenChannel(ChannelMessage message);
  absl::StatusOr<Channel> MakeChannel(ChannelMessage message);
  void Serve(ChannelId id);
  bool TrySend(Open::iterator channel);
  absl::Status WhyDue(const Channel& channel) const;
  void SetDue(ChannelId id, Channel& channel, MonotonicTime due);
  void FailDue(MonotonicTime now);
  void Remove(Open::iterator channel);
  void Fail(Open::iterator channel, const absl::Status& why);
  int WaitMilliseconds();

  const ChannelsOptions options_;
  const Clock& clock_;
  const Events events_;
  const ZmqContext context_;
  const int epoll_;
  const WakeEvent wake_;
  std::optional<CurveKeys> curve_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> num_open_{0};
  Mutex mutex_;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  // The thread's own.
  Open open_;
  std::set<std::pair<MonotonicTime, ChannelId>> due_;
  std::set<ChannelId> unfinished_;  // May have more answers.
  std::thread thread_;
};

absl::Status Channels::Impl::Start() {
  if (options_.channels_max < 1) return InvalidArgument("channels_max is 0; use at least 1");
  if (options_.connect_timeout <= absl::ZeroDuration()) {
    return InvalidArgument("connect_timeout is {} s; use a time above 0",
                           absl::ToDoubleSeconds(options_.connect_timeout));
  }
  if (!wake_.valid() || epoll_ < 0) {
    return Unavailable("no descriptor for the side channel; raise the limit of open files");
  }
  if (options_.curve_server_key) {
    TENURE_RETURN_IF_ERROR(CheckCurveKey("the prefill engine's public key", *options_.curve_server_key));
    TENURE_ASSIGN_OR_RETURN(curve_, MakeCurveKeys());
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = UINT64_MAX}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_.fd(), &event) != 0) {
    return Unavailable("no descriptor for the side channel; raise the limit of open files");
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

Channels::Impl::~Impl() {
  stop_.store(true);
  wake_.Wake();
  if (thread_.joinable()) thread_.join();
  if (epoll_ >= 0) close(epoll_);
}

void Channels::Impl::Send(ChannelMessage message) {
  {
    MutexLock lock(mutex_);
    orders_.emplace_back(std::move(message));
  }
  wake_.Wake();
}

void Channels::Impl::Close(ChannelId channel) {
  {
    MutexLock lock(mutex_);
    orders_.emplace_back(channel);
  }
  wake_.Wake();
}

void Channels::Impl::Run() {
  std::array<epoll_event, kEventsAtOnce> events{};
  while (!stop_.load()) {
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), WaitMilliseconds());
    std::set<ChannelId> ready = std::exchange(unfinished_, {});
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == UINT64_MAX) {
        wake_.Clear();
      } else {
        ready.insert(ChannelId(events[i].data.u64));
      }
    }
    for (const ChannelId id : ready) Serve(id);
    while (CarryOut()) {
    }
    FailDue(clock_.Now());
  }
}

// Whether there was anything: events may have given more.
bool Channels::Impl::CarryOut() {
  std::deque<Order> orders;
  {
    MutexLock lock(mutex_);
    orders.swap(orders_);
  }
  for (Order& order : orders) {
    if (ChannelMessage* message = std::get_if<ChannelMessage>(&order)) {
      OpenChannel(std::move(*message));
    } else if (const auto channel = open_.find(std::get<ChannelId>(order)); channel != open_.end()) {
      Remove(channel);
    }
  }
  return !orders.empty();
}

void Channels::Impl::OpenChannel(ChannelMessage message) {
  const ChannelId id = message.channel;
  const MonotonicTime now = clock_.Now();
  absl::StatusOr<Channel> made = MakeChannel(std::move(message));
  if (!made.ok()) {
    events_.on_not_sent(id, made.status());
    return;
  }
  const auto channel = open_.emplace(id, std::move(made).value()).first;
  num_open_.store(open_.size());
  SetDue(id, channel->second, std::min(channel->second.deadline, now + options_.connect_timeout));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id.value()}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, channel->second.socket.fd(), &event) != 0) {
    Fail(channel,
         Unavailable("no descriptor for a message to {}; raise the limit of open files", channel->second.address));
    return;
  }
  Serve(id);  // The descriptor tells of changes alone.
}

absl::StatusOr<Channels::Impl::Channel> Channels::Impl::MakeChannel(ChannelMessage message) {
  if (open_.contains(message.channel)) {
    return InvalidArgument("channel {} is open already; give each message a new one", message.channel.value());
  }
  if (message.bytes.size() > options_.message_bytes_max) {
    return InvalidArgument("a message to {} has {} bytes; use at most {}", message.address, message.bytes.size(),
                           options_.message_bytes_max);
  }
  if (!pd::IsWorkerAddress(message.address)) {
    return InvalidArgument("\"{}\" is no address to connect to; register tcp://IP:PORT",
                           OneLine(message.address, kAddressShownMax));
  }
  if (open_.size() >= options_.channels_max) {
    return ResourceExhausted("{} messages wait for answers, the maximum; retry later", open_.size());
  }
  TENURE_ASSIGN_OR_RETURN(ZmqSocket socket,
                          ZmqSocket::Create(context_, {.kind = ZmqSocketOptions::Kind::kDealer,
                                                       .ipv6 = message.address.find('[') != std::string::npos,
                                                       .message_bytes_max = options_.message_bytes_max,
                                                       .curve = curve_,
                                                       .curve_server_key = options_.curve_server_key}));
  TENURE_RETURN_IF_ERROR(socket.Connect(message.address));
  return Channel{.socket = std::move(socket),
                 .address = std::move(message.address),
                 .bytes = std::move(message.bytes),
                 .deadline = message.deadline,
                 .due = MonotonicTime::Max()};
}

void Channels::Impl::Serve(ChannelId id) {
  for (int i = 0; i < kAnswersInARow; ++i) {
    const auto channel = open_.find(id);
    if (channel == open_.end()) return;
    const ZmqReady ready = channel->second.socket.Poll();
    if (ready.in) {
      std::optional<ZmqMessage> answer = channel->second.socket.Receive();
      // P answers in one frame; what else came is no answer.
      if (answer && answer->num_frames == 1) events_.on_answer(id, std::move(answer->frames[0]));
    } else if (!channel->second.sent) {
      if (!ready.out || !TrySend(channel)) return;
    } else if (!ready.out) {
      Fail(channel, Unavailable("{} closed the connection before it had answered; see the prefill engine's log",
                                channel->second.address));
      return;
    } else {
      return;
    }
  }
  unfinished_.insert(id);
}

// Whether the message went out, so that there may be something new.
bool Channels::Impl::TrySend(Open::iterator channel) {
  Channel& sending = channel->second;
  if (sending.socket.Send({sending.bytes}) != ZmqSocket::Sent::kYes) return false;
  sending.sent = true;
  sending.bytes = std::string();
  SetDue(channel->first, sending, sending.deadline);
  return true;
}

absl::Status Channels::Impl::WhyDue(const Channel& channel) const {
  if (channel.sent) {
    return absl::DeadlineExceededError(
        fmt::format("{} has not answered by the request's deadline; see the prefill engine's log", channel.address));
  }
  return Unavailable(
      "{} cannot be reached; check that the prefill worker runs, and that both sides have CURVE keys of one pair or "
      "neither has",
      channel.address);
}

void Channels::Impl::SetDue(ChannelId id, Channel& channel, MonotonicTime due) {
  due_.erase({channel.due, id});
  channel.due = due;
  due_.insert({due, id});
}

void Channels::Impl::FailDue(MonotonicTime now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const auto channel = open_.find(due_.begin()->second);
    Fail(channel, WhyDue(channel->second));
  }
}

void Channels::Impl::Remove(Open::iterator channel) {
  due_.erase({channel->second.due, channel->first});
  unfinished_.erase(channel->first);
  // Before ZeroMQ closes the descriptor, on a thread of its own.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, channel->second.socket.fd(), nullptr);
  open_.erase(channel);
  num_open_.store(open_.size());
}

void Channels::Impl::Fail(Open::iterator channel, const absl::Status& why) {
  const ChannelId id = channel->first;
  const bool sent = channel->second.sent;
  Remove(channel);
  (sent ? events_.on_failed : events_.on_not_sent)(id, why);
}

int Channels::Impl::WaitMilliseconds() {
  if (!unfinished_.empty()) return 0;
  absl::Duration wait = kLookMax;
  if (!due_.empty()) wait = std::clamp(due_.begin()->first - clock_.Now(), absl::ZeroDuration(), kLookMax);
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
}

absl::StatusOr<std::unique_ptr<Channels>> Channels::Start(const ChannelsOptions& options, const Clock& clock,
                                                          Events events) {
  auto impl = std::make_unique<Impl>(options, clock, std::move(events));
  TENURE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Channels>(new Channels(std::move(impl)));
}

Channels::Channels(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Channels::~Channels() = default;

void Channels::Send(ChannelMessage message) { impl_->Send(std::move(message)); }
void Channels::Close(ChannelId channel) { impl_->Close(channel); }
size_t Channels::num_open() const { return impl_->num_open(); }

}  // namespace tenure::handoff
