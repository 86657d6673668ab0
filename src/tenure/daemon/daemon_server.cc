#include "tenure/daemon/daemon_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/log.h"
#include "tenure/base/look_again.h"
#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

// An epoll token: twice the id of a connection for its socket, one more for its process; ids start at 1.
constexpr uint64_t kListeningToken = 0;
constexpr uint64_t kStopToken = 1;
constexpr int kEventsMax = 64;

DaemonState MakeState(const DaemonServerOptions& options, const SharedMemory& memory) {
  DaemonState state;
  state.limits.held_bytes_max = options.held_bytes_max == Bytes(0)
                                    ? std::max(options.object_bytes_max, Bytes(memory.size().value() / 2))
                                    : options.held_bytes_max;
  state.memory = memory.size();
  state.object_max = options.object_bytes_max;
  state.closed = options.closed;
  return state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonServer>> DaemonServer::Create(const DaemonServerOptions& options,
                                                                   store::EmbeddedPool& pool, SharedMemory memory,
                                                                   ListeningSocket socket, const Clock& clock) {
  if (options.held_bytes_max != Bytes(0) && options.held_bytes_max < options.object_bytes_max) {
    return InvalidArgument("held_bytes_max is {}; give at least the largest object, {} bytes",
                           options.held_bytes_max.value(), options.object_bytes_max.value());
  }
  if (options.clients_max < 1) return InvalidArgument("clients_max is {}; give at least 1", options.clients_max);
  std::unique_ptr<DaemonServer> server(new DaemonServer(options, pool, std::move(memory), std::move(socket), clock));
  if (!server->epoll_.valid() || !server->stop_.valid()) {
    return Unavailable("no descriptors for the daemon: {}", std::strerror(errno));
  }
  TENURE_RETURN_IF_ERROR(server->Add(server->stop_.get(), EPOLLIN, kStopToken));
  return server;
}

DaemonServer::DaemonServer(const DaemonServerOptions& options, store::EmbeddedPool& pool, SharedMemory memory,
                           ListeningSocket socket, const Clock& clock)
    : options_(options),
      pool_(pool),
      clock_(clock),
      memory_(std::move(memory)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      listening_(std::move(socket)),
      state_(MakeState(options, memory_)) {}

DaemonServer::~DaemonServer() = default;

absl::Status DaemonServer::Add(int fd, uint32_t events, uint64_t token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return Unavailable("a descriptor cannot be watched: {}", std::strerror(errno));
}

void DaemonServer::Stop() {
  const uint64_t one = 1;
  // Can fail only when a stop is pending already.
  if (write(stop_.get(), &one, sizeof one) < 0) return;
}

absl::Status DaemonServer::Listen() {
  MutexLock lock(mutex_);
  TENURE_RETURN_IF_ERROR(listening_.Listen());
  return Add(listening_.fd(), EPOLLIN, kListeningToken);
}

absl::Status DaemonServer::Run() {
  std::array<epoll_event, kEventsMax> events{};
  LookAgain look(real_clock_);
  while (const std::optional<int> wait_ms = NextWait()) {
    const bool sleeps = *wait_ms != 0 && !look.Worthwhile();
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, sleeps ? *wait_ms : 0);
    if (count > 0) look.Begin();
    if (count < 0 && errno != EINTR) return Unavailable("waiting for clients failed: {}", std::strerror(errno));
    MutexLock lock(mutex_);
    const std::set<uint64_t> busy = busy_;
    for (const uint64_t id : busy) Serve(id, EPOLLIN);
    for (int i = 0; i < count; ++i) {
      HandleEvent(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
    }
  }
  MutexLock lock(mutex_);
  clients_.clear();  // In this order: while a client's socket stands, its copies are of the objects.
  memory_.GiveBackPages();
  return absl::OkStatus();
}

std::optional<int> DaemonServer::NextWait() {
  MutexLock lock(mutex_);
  if (!state_.draining) return busy_.empty() ? -1 : 0;
  if (!Holds()) return std::nullopt;
  const absl::Duration left = drain_end_ - real_clock_.Now();
  if (left <= absl::ZeroDuration()) {
    LogWarning("daemon: ends while clients still copy; they find misses");
    return std::nullopt;
  }
  return busy_.empty() ? static_cast<int>(absl::ToInt64Milliseconds(left)) + 1 : 0;
}

void DaemonServer::HandleEvent(uint64_t token, uint32_t events) {
  if (token == kStopToken) {
    BeginDrain();
  } else if (token == kListeningToken) {
    Accept();
  } else if (token % 2 == 1) {
    Drop(token / 2);  // Its process has ended.
  } else {
    Serve(token / 2, events);
  }
}

void DaemonServer::Accept() {
  if (state_.draining) return;
  FileDescriptor socket(accept4(listening_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) {
    Welcome(std::move(socket));
  } else if (errno == EMFILE || errno == ENFILE) {
    LogWarning(
        "daemon: no descriptor left for another client; accepting again when one has gone (raise the limit of open "
        "files)");
    SetAccepting(false);
  }
}

// Tells why, if the socket takes that at once.
void DaemonServer::Refuse(const FileDescriptor& socket, ErrorCode code, std::string text) {
  ++totals_.clients_refused_total;
  std::vector<std::byte> frame;
  AppendFrame(ErrorReply{.code = code, .text = std::move(text)}, 0, frame);
  if (send(socket.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;  // It is gone already.
}

void DaemonServer::Welcome(FileDescriptor socket) {
  absl::StatusOr<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) {
    ++totals_.clients_refused_total;
    return;
  }
  if (!MayConnect(socket.get(), *peer, listening_.options().group)) {
    Refuse(socket, ErrorCode::kNotPermitted,
           fmt::format("user {} may not use this daemon; run the client as the daemon's user or as a member of its "
                       "--group",
                       peer->uid));
    return;
  }
  if (clients_.size() >= static_cast<size_t>(options_.clients_max)) {
    Refuse(socket, ErrorCode::kUnavailable,
           fmt::format("{} clients are connected, the most that the daemon takes (--clients-max)", clients_.size()));
    return;
  }
  const uint64_t id = next_id_++;
  auto connection =
      std::make_unique<DaemonConnection>(std::move(socket), *std::move(peer), memory_.fd(), pool_, clock_, state_);
  const FileDescriptor& death = connection->peer().death;
  if (!Add(connection->fd(), EPOLLIN, 2 * id).ok() || (death.valid() && !Add(death.get(), EPOLLIN, 2 * id + 1).ok())) {
    ++totals_.clients_refused_total;
    return;
  }
  ++totals_.clients_total;
  clients_.emplace(id, Client{.connection = std::move(connection), .watched = EPOLLIN});
}

void DaemonServer::Serve(uint64_t id, uint32_t events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // Dropped by an earlier event of the same round.
  DaemonConnection& connection = *found->second.connection;
  const bool was_open = connection.state() == DaemonConnection::State::kOpen;
  if ((events & EPOLLOUT) != 0) connection.Write();
  if ((events & EPOLLIN) != 0) connection.Read();
  const bool open = connection.state() == DaemonConnection::State::kOpen;
  if (was_open && connection.state() == DaemonConnection::State::kCutOff) ++totals_.clients_cut_off_total;
  // A client that was cut off is no longer read: its end is told without asking.
  if (connection.state() == DaemonConnection::State::kGone || (!was_open && (events & (EPOLLHUP | EPOLLERR)) != 0)) {
    Drop(id);
    return;
  }
  if (connection.has_more()) {
    busy_.insert(id);
  } else {
    busy_.erase(id);
  }
  const uint32_t wanted =
      (open ? uint32_t{EPOLLIN} : 0u) | (open && connection.unsent_bytes() > 0 ? uint32_t{EPOLLOUT} : 0u);
  if (wanted == found->second.watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = 2 * id;
  TENURE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event) == 0);
  found->second.watched = wanted;
}

void DaemonServer::Drop(uint64_t id) {
  clients_.erase(id);
  busy_.erase(id);
  if (!state_.draining) SetAccepting(true);
}

void DaemonServer::SetAccepting(bool accepting) {
  if (accepting == accepting_) return;
  epoll_event event{};
  event.events = accepting ? uint32_t{EPOLLIN} : 0u;
  event.data.u64 = kListeningToken;
  TENURE_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listening_.fd(), &event) == 0);
  accepting_ = accepting;
}

void DaemonServer::BeginDrain() {
  uint64_t count = 0;
  if (read(stop_.get(), &count, sizeof count) < 0 || state_.draining) return;
  state_.draining = true;
  drain_end_ = real_clock_.Now() + options_.drain_timeout;
  listening_.Close();
}

bool DaemonServer::Holds() const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [](const auto& client) { return client.second.connection->holdings().held_objects() > 0; });
}

DaemonStats DaemonServer::Stats() const {
  MutexLock lock(mutex_);
  DaemonStats stats = totals_;
  stats.clients = static_cast<int64_t>(clients_.size());
  stats.draining = state_.draining ? 1 : 0;
  stats.messages_total = state_.messages_total;
  stats.errors_total = state_.errors_total;
  stats.held_refusals_total = state_.held_refusals_total;
  for (const auto& [id, client] : clients_) {
    const ClientHoldings& holdings = client.connection->holdings();
    stats.held_bytes += holdings.held_bytes();
    stats.held_bytes_of_one_max = std::max(stats.held_bytes_of_one_max, holdings.held_bytes());
    stats.held_objects += holdings.held_objects();
    stats.leased_keys += holdings.leased_keys();
    stats.unsent_bytes += Bytes(static_cast<int64_t>(client.connection->unsent_bytes()));
  }
  return stats;
}

}  // namespace tenure::daemon
