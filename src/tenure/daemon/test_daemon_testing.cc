#include "tenure/daemon/test_daemon_testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/daemon/shared_memory.h"

namespace tenure::daemon {
namespace {

constexpr int kAskAgainMs = 1;

std::unique_ptr<store::EmbeddedPool> MakePool(const TestDaemonOptions& options, const Clock& clock) {
  store::EmbeddedPoolOptions pool;
  pool.capacity = options.capacity;
  pool.slab_bytes = options.slab_bytes;
  pool.mode = options.mode;
  pool.objects_max = options.objects_max;
  pool.memory = store::MemoryKind::kVirtual;
  pool.shards = 8;
  return store::EmbeddedPool::Create(pool, clock).value();
}

std::unique_ptr<DaemonServer> MakeServer(const std::string& socket_path, const TestDaemonOptions& options,
                                         store::EmbeddedPool& pool, SharedMemory memory, const Clock& clock) {
  DaemonServerOptions server = options.server;
  server.closed = options.mode == store::PoolMode::kClosed;
  server.object_bytes_max = options.slab_bytes;
  ListeningSocket socket = ListeningSocket::Bind({.path = socket_path, .group = std::nullopt}).value();
  return DaemonServer::Create(server, pool, std::move(memory), std::move(socket), clock).value();
}

bool ReadByte(int fd) {
  pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
  char byte = 0;
  return poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(kTestPatience))) == 1 && read(fd, &byte, 1) == 1;
}

void WriteByte(int fd) {
  const char byte = '.';
  // The other side may be gone, which its reader finds out.
  if (write(fd, &byte, 1) < 0) return;
}

std::pair<FileDescriptor, FileDescriptor> MakePipe() {
  std::array<int, 2> ends{};
  TENURE_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

DaemonServer* serving_process_server = nullptr;

}  // namespace

TempFolder::TempFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tenure-XXXXXX").string();
  TENURE_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool Eventually(const std::function<bool()>& holds) {
  const MonotonicClock clock;
  const MonotonicTime end = clock.Now() + kTestPatience;
  while (!holds()) {
    if (clock.Now() >= end) return false;
    poll(nullptr, 0, kAskAgainMs);
  }
  return true;
}

TestDaemon::TestDaemon(const std::string& socket_path, const TestDaemonOptions& options, const Clock& clock)
    : pool_(MakePool(options, clock)) {
  SharedMemory memory = SharedMemory::Create({.size = options.capacity, .huge_pages = false}).value();
  memory_ = FileDescriptor(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
  server_ = MakeServer(socket_path, options, *pool_, std::move(memory), clock);
  TENURE_CHECK(server_->Listen().ok());
  thread_ = std::thread([this] { TENURE_CHECK(server_->Run().ok()); });
}

TestDaemon::~TestDaemon() { Stop(); }

void TestDaemon::Stop() {
  server_->Stop();
  if (thread_.joinable()) thread_.join();
}

bool TestDaemon::Corrupt(const store::ObjectKey& key) {
  store::KeyAnswer answer = store::KeyAnswer::kAbsent;
  const auto pinned = pool_->Pin({&key, 1}, {&answer, 1}).value();
  if (answer != store::KeyAnswer::kPresent) return false;
  std::byte byte{};
  const off_t offset = pinned[0].memory().offset;
  TENURE_CHECK(pread(memory_.get(), &byte, 1, offset) == 1);
  byte ^= std::byte{1};
  TENURE_CHECK(pwrite(memory_.get(), &byte, 1, offset) == 1);
  return true;
}

void TestProcess::Line::Say() const { WriteByte(out_); }
bool TestProcess::Line::Hear() const { return ReadByte(in_); }

TestProcess::TestProcess(const std::function<int(const Line&)>& body) {
  auto [child_in, to] = MakePipe();
  auto [from, child_out] = MakePipe();
  pid_ = fork();
  TENURE_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // A test that is killed leaves no daemon behind.
    const Line line(child_in.get(), child_out.get());
    to = FileDescriptor();
    from = FileDescriptor();
    _exit(line.Hear() ? body(line) : 0);
  }
  to_ = std::move(to);
  from_ = std::move(from);
}

TestProcess::~TestProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

void TestProcess::Say() const { WriteByte(to_.get()); }
bool TestProcess::Hear() const { return ReadByte(from_.get()); }
void TestProcess::Signal(int number) const { kill(pid_, number); }

int TestProcess::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) TENURE_CHECK(errno == EINTR);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int ServeInProcess(const TestProcess::Line& line, const std::string& socket_path, const TestDaemonOptions& options) {
  const MonotonicClock clock;
  const std::unique_ptr<store::EmbeddedPool> pool = MakePool(options, clock);
  SharedMemory memory = SharedMemory::Create({.size = options.capacity, .huge_pages = false}).value();
  const auto server = MakeServer(socket_path, options, *pool, std::move(memory), clock);
  serving_process_server = server.get();
  signal(SIGTERM, [](int) { serving_process_server->Stop(); });
  TENURE_CHECK(server->Listen().ok());
  line.Say();
  return server->Run().ok() ? 0 : 1;
}

}  // namespace tenure::daemon
