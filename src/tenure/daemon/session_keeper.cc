#include "tenure/daemon/session_keeper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

constexpr size_t kPopulateStepBytes = size_t{32} << 20;  // A few milliseconds.

}  // namespace

void SessionKeeper::Signal::Wake() const {
  const uint64_t one = 1;
  // Can fail only when a wake is pending already.
  if (write(wake.get(), &one, sizeof one) < 0) return;
}

absl::StatusOr<std::unique_ptr<SessionKeeper>> SessionKeeper::Start(const SessionKeeperOptions& options) {
  std::unique_ptr<SessionKeeper> keeper(new SessionKeeper(options));
  keeper->signal_->wake = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!keeper->signal_->wake.valid()) return Unavailable("no descriptor: {}", std::strerror(errno));
  TENURE_RETURN_IF_ERROR(keeper->Connect());
  keeper->thread_ = std::thread([raw = keeper.get()] { raw->Run(); });
  return keeper;
}

SessionKeeper::SessionKeeper(const SessionKeeperOptions& options)
    : options_(options), signal_(std::make_shared<Signal>()) {}

SessionKeeper::~SessionKeeper() {
  signal_->stop.store(true);
  signal_->Wake();
  if (thread_.joinable()) thread_.join();
}

void SessionKeeper::Abandon(std::unique_ptr<SessionKeeper> keeper) {
  // Its thread exists only in the parent, and its memory was not inherited: to destroy either here would be wrong.
  static_cast<void>(keeper.release());
}

std::shared_ptr<LiveSession> SessionKeeper::Current() const {
  MutexLock lock(mutex_);
  return current_ != nullptr && !current_->client->broken() ? current_ : nullptr;
}

absl::Status SessionKeeper::Connect() {
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<ClientSession> client,
                          ClientSession::Connect(options_.socket_path, options_.patience));
  if (last_epoch_ == 0) closed_ = client->hello().closed;
  if (client->hello().closed != closed_) {
    return FailedPrecondition("socket {}: the daemon came back in another mode (--mode); restart this client",
                              options_.socket_path);
  }
  client->set_on_broken([signal = signal_] { signal->Wake(); });
  signal_->sessions.fetch_add(1);
  // Told only after the memory is unmapped, which is later than the last reference is gone.
  const auto end = [signal = signal_](LiveSession* session) {
    delete session;
    signal->sessions.fetch_sub(1);
    signal->Wake();
  };
  std::shared_ptr<LiveSession> session(new LiveSession(std::move(client), ++last_epoch_), end);
  MutexLock lock(mutex_);
  current_ = std::move(session);
  return absl::OkStatus();
}

void SessionKeeper::Run() {
  absl::Duration backoff = options_.backoff_min;
  absl::Status said;  // So that a refusal is told once and not with every attempt.
  while (!signal_->stop.load()) {
    std::shared_ptr<LiveSession> session;
    {
      MutexLock lock(mutex_);
      session = current_;
    }
    if (session != nullptr) {
      if (options_.populate) Populate(*session);
      Watch(*session);
      MutexLock lock(mutex_);
      current_ = nullptr;
      backoff = options_.backoff_min;
    } else if (signal_->sessions.load() > 0) {
      Wait(-1, absl::InfiniteDuration());  // For the copies on the old memory.
    } else if (const absl::Status status = Connect(); status.ok()) {
      LogInfo("daemon client: connected again to {}", options_.socket_path);
    } else {
      if (!absl::IsUnavailable(status) && status != said) LogWarning("daemon client: {}", Message(status));
      said = status;
      Wait(-1, backoff);
      backoff = std::min(2 * backoff, options_.backoff_max);
    }
  }
}

void SessionKeeper::Watch(const LiveSession& session) {
  while (!signal_->stop.load() && !session.client->broken()) {
    if (session.client->HungUp()) break;
    Wait(session.client->fd(), absl::InfiniteDuration());
  }
  if (!signal_->stop.load()) {
    LogWarning("daemon client: the daemon at {} is gone; all keys are misses until it is back", options_.socket_path);
  }
}

void SessionKeeper::Populate(LiveSession& session) {
  const std::span<std::byte> memory = session.client->memory();
  for (size_t done = 0; done < memory.size(); done += kPopulateStepBytes) {
    if (signal_->stop.load() || session.client->broken() || session.client->HungUp()) return;
    const size_t step = std::min(kPopulateStepBytes, memory.size() - done);
    if (madvise(memory.data() + done, step, MADV_POPULATE_READ) != 0) return;  // Then they come with their first use.
  }
}

void SessionKeeper::Wait(int fd, absl::Duration at_most) {
  std::array<pollfd, 2> watched = {
      {{.fd = signal_->wake.get(), .events = POLLIN, .revents = 0}, {.fd = fd, .events = POLLRDHUP, .revents = 0}}};
  const int timeout_ms =
      at_most == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(at_most)) + 1;
  if (poll(watched.data(), watched.size(), timeout_ms) <= 0) return;
  uint64_t count = 0;
  // Nothing to read when the other descriptor woke us.
  if (read(signal_->wake.get(), &count, sizeof count) < 0) return;
}

}  // namespace tenure::daemon
