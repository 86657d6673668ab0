// What clients and daemons as real processes do to each other: kill, stop, fork, restart. Each process is ended by its
// own id.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/client_session.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::ObjectKey;
using store::PutAnswer;

constexpr char kPrefix[] = "model@tp0";
constexpr size_t kObjectBytes = 10'000;

DaemonPoolOptions PoolOptions(const std::string& path) {
  DaemonPoolOptions options;
  options.socket_path = path;
  options.call_deadline = kTestPatience;
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(10);
  return options;
}

MonotonicTime InTime() { return MonotonicClock().Now() + kTestPatience; }

// A client by hand, which can stop anywhere between two messages.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : session_(ClientSession::Connect(path, kTestPatience).value()) {
    OpenNamespaceReply reply;
    TENURE_CHECK(session_->Call(OpenNamespaceRequest{.prefix = kPrefix}, InTime(), reply).ok());
    name_space_ = store::NamespaceId(reply.name_space);
  }
  ObjectKey Key(uint64_t number) const { return TestKey(name_space_, number); }
  ClientSession& session() { return *session_; }

  ReserveReply Reserve(uint64_t number) {
    ReserveReply reply;
    const ReserveObject object{
        .key = Key(number), .size = kObjectBytes, .kind = store::ObjectKind::kOther, .parent = {}};
    TENURE_CHECK(session_->Call(ReserveRequest{.objects = {object}}, InTime(), reply).ok());
    return reply;
  }
  PinReply Pin(uint64_t number) {
    PinReply reply;
    TENURE_CHECK(session_->Call(PinRequest{.keys = {Key(number)}}, InTime(), reply).ok());
    return reply;
  }
  PutAnswer Commit(const ReserveReply& reserved, uint64_t digest) {
    CommitReply reply;
    const CommitRequest commit{.batch = reserved.batch, .objects = {{.ordinal = 0, .digest = digest}}};
    TENURE_CHECK(session_->Call(commit, InTime(), reply).ok());
    return reply.answers[0];
  }

 private:
  std::unique_ptr<ClientSession> session_;
  store::NamespaceId name_space_;
};

class DaemonProcessTest : public ::testing::Test {
 protected:
  void StartDaemon() {
    daemon_ = std::make_unique<TestDaemon>(path_, TestDaemonOptions(), clock_);
    pool_ = DaemonPool::Connect(PoolOptions(path_), clock_).value();
    name_space_ = pool_->OpenNamespace(kPrefix).value();
  }
  ObjectKey Key(uint64_t number) const { return TestKey(name_space_, number); }

  const TempFolder folder_;
  const std::string path_ = folder_.File("pool.sock");
  const MonotonicClock clock_;
  std::unique_ptr<TestDaemon> daemon_;
  std::unique_ptr<DaemonPool> pool_;
  store::NamespaceId name_space_;
};

TEST_F(DaemonProcessTest, ClientKilledInTheMiddleOfAPutLeavesAMissAndItsRoom) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    raw.Reserve(1);
    line.Say();
    return line.Hear() ? 0 : 1;
  });
  StartDaemon();
  client.Say();
  ASSERT_TRUE(client.Hear());
  EXPECT_EQ(pool_->Stats().held.writing, 1);
  EXPECT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kBusy);
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return pool_->Stats().held.writing == 0; }));
  EXPECT_EQ(pool_->Stats().used, Bytes(0));
  EXPECT_EQ(GetOne(*pool_, Key(1), kObjectBytes), KeyAnswer::kAbsent);
  EXPECT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
}

TEST_F(DaemonProcessTest, ClientKilledInTheMiddleOfAGetLeavesNoPin) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    if (raw.Pin(1).places[0].answer != KeyAnswer::kPresent) return 2;
    line.Say();
    return line.Hear() ? 0 : 1;
  });
  StartDaemon();
  ASSERT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
  client.Say();
  ASSERT_TRUE(client.Hear());
  EXPECT_EQ(pool_->Stats().held.pinned, 1);
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return pool_->Stats().held.pinned == 0; }));
  EXPECT_EQ(GetOne(*pool_, Key(1), kObjectBytes), KeyAnswer::kPresent);
}

TEST_F(DaemonProcessTest, LeaseOfAKilledClientRunsOutByItsDeadlineAndNotBefore) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    LeaseReply reply;
    const LeaseRequest lease{.ttl_nanoseconds = absl::ToInt64Nanoseconds(absl::Hours(1)), .keys = {raw.Key(1)}};
    if (!raw.session().Call(lease, InTime(), reply).ok()) return 2;
    line.Say();
    return line.Hear() ? 0 : 1;
  });
  StartDaemon();
  ASSERT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
  client.Say();
  ASSERT_TRUE(client.Hear());
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().clients == 1; }));
  EXPECT_EQ(pool_->Stats().held.leased, 1);
}

// While it is stopped others fill the whole pool; its room must not be among what they get.
TEST_F(DaemonProcessTest, StoppedWriterFinishesItsPutAndTouchesNoOtherKey) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    const ReserveReply reserved = raw.Reserve(1);
    line.Say();
    raise(SIGSTOP);
    // As a copy that goes on after any time.
    const std::vector<std::byte> bytes(kObjectBytes, std::byte{0xEE});
    std::copy(bytes.begin(), bytes.end(),
              raw.session().memory().begin() + static_cast<ptrdiff_t>(reserved.places[0].offset));
    return raw.Commit(reserved, /*digest=*/1) == PutAnswer::kStored ? 0 : 3;
  });
  StartDaemon();
  client.Say();
  ASSERT_TRUE(client.Hear());
  int status = 0;
  ASSERT_EQ(waitpid(client.pid(), &status, WUNTRACED), client.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  std::vector<ObjectKey> others;
  for (uint64_t i = 100; i < 2000; ++i) {
    if (PutOne(*pool_, Key(i), kObjectBytes) == PutAnswer::kStored) others.push_back(Key(i));
  }
  EXPECT_EQ(pool_->Stats().held.writing, 1);
  client.Signal(SIGCONT);
  EXPECT_EQ(client.Wait(), 0);
  int64_t present = 0;
  // GetOne ends the test at the first byte that is not the key's own.
  for (const ObjectKey& key : others) present += GetOne(*pool_, key, kObjectBytes) == KeyAnswer::kPresent;
  EXPECT_GT(present, 100);
  EXPECT_EQ(pool_->Stats().checksum_failures_total, 0);
}

TEST_F(DaemonProcessTest, StoppedReaderStillReadsItsKeysBytes) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    const PinReply pinned = raw.Pin(1);
    line.Say();
    raise(SIGSTOP);
    const auto memory = raw.session().memory().subspan(pinned.places[0].offset, kObjectBytes);
    return std::equal(memory.begin(), memory.end(), TestBytes(raw.Key(1), kObjectBytes).begin()) ? 0 : 3;
  });
  StartDaemon();
  ASSERT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
  client.Say();
  ASSERT_TRUE(client.Hear());
  int status = 0;
  ASSERT_EQ(waitpid(client.pid(), &status, WUNTRACED), client.pid());
  std::array<KeyAnswer, 1> removed{};
  ASSERT_TRUE(pool_->Remove(std::array{Key(1)}, removed).ok());
  EXPECT_EQ(removed[0], KeyAnswer::kPresent);
  for (uint64_t i = 100; i < 2000; ++i) PutOne(*pool_, Key(i), kObjectBytes);
  client.Signal(SIGCONT);
  EXPECT_EQ(client.Wait(), 0);
}

// The socket stays open in the grandchild, so only the death of the client itself can tell.
TEST_F(DaemonProcessTest, ForkedChildThatKeepsTheSocketDoesNotKeepTheReservation) {
  TestProcess client([&](const TestProcess::Line& line) {
    RawClient raw(path_);
    raw.Reserve(1);
    const pid_t child = fork();
    if (child == 0) {
      line.Hear();  // Holds the socket until the test has seen enough.
      _exit(0);
    }
    line.Say();
    pause();
    return 0;
  });
  StartDaemon();
  client.Say();
  ASSERT_TRUE(client.Hear());
  EXPECT_EQ(pool_->Stats().held.writing, 1);
  client.Signal(SIGKILL);
  EXPECT_EQ(client.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return pool_->Stats().held.writing == 0; }));
  client.Say();
}

TEST_F(DaemonProcessTest, ForkedChildOfAClientGetsMissesAndDisturbsNothing) {
  TestProcess client([&](const TestProcess::Line&) {
    const MonotonicClock clock;
    std::unique_ptr<DaemonPool> pool = DaemonPool::Connect(PoolOptions(path_), clock).value();
    const ObjectKey key = TestKey(pool->OpenNamespace(kPrefix).value(), 1);
    std::array<KeyAnswer, 1> answers{};
    store::Lease lease = pool->AcquireLease(std::array{key}, absl::Hours(1), answers).value();
    const pid_t child = fork();
    if (child == 0) {
      const bool missed = absl::IsUnavailable(pool->Probe(std::array{key}, answers)) &&
                          answers[0] == KeyAnswer::kUnavailable && PutOne(*pool, key, 10) == PutAnswer::kNotStored &&
                          absl::IsUnavailable(pool->OpenNamespace("x").status());
      lease.Release();
      pool.reset();
      _exit(missed ? 0 : 4);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 5;
    if (pool->Stats().held.leased != 1) return 6;
    return GetOne(*pool, key, kObjectBytes) == KeyAnswer::kPresent ? 0 : 7;
  });
  StartDaemon();
  ASSERT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
  client.Say();
  EXPECT_EQ(client.Wait(), 0);
}

// Only root can play another user; the socket is opened to everybody first, so that the daemon itself has to refuse.
TEST_F(DaemonProcessTest, OtherUserIsRefusedThoughTheSocketIsOpen) {
  constexpr uid_t kOther = 65'534;
  TestProcess client([&](const TestProcess::Line&) {
    if (setgid(kOther) != 0 || setuid(kOther) != 0) return 0;
    return absl::IsPermissionDenied(ClientSession::Connect(path_, kTestPatience).status()) ? 0 : 2;
  });
  StartDaemon();
  ASSERT_EQ(chmod(folder_.File("").c_str(), 0755), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0777), 0);
  client.Say();
  EXPECT_EQ(client.Wait(), 0);
  EXPECT_EQ(daemon_->server().Stats().clients_refused_total, geteuid() == 0 ? 1 : 0);
}

TEST_F(DaemonProcessTest, ClientCannotCutTheMemory) {
  StartDaemon();
  // Its descriptors in this process, which the kernel treats as any client's.
  int cut = 0;
  for (int fd = 3; fd < 256; ++fd) {
    std::array<char, 256> target{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target.data(), target.size() - 1) < 0) continue;
    if (std::string(target.data()).find("memfd:tenure-pool") == std::string::npos) continue;
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(ftruncate(fd, int64_t{1} << 30), 0);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    ++cut;
  }
  EXPECT_GT(cut, 0);
  EXPECT_EQ(PutOne(*pool_, Key(1), kObjectBytes), PutAnswer::kStored);
}

// The pools that a process has mapped, by file.
std::multiset<std::string> MappedPools(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::multiset<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tenure-pool") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string range;
    std::string access;
    std::string offset;
    std::string device;
    std::string inode;
    fields >> range >> access >> offset >> device >> inode;
    files.insert(inode);
  }
  return files;
}

TEST_F(DaemonProcessTest, RestartUnderFourClientsLeavesOnePoolsWorthOfMemory) {
  const auto serve = [&](const TestProcess::Line& line) { return ServeInProcess(line, path_, TestDaemonOptions()); };
  TestProcess first(serve);
  TestProcess second(serve);
  std::vector<std::unique_ptr<TestProcess>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<TestProcess>([&](const TestProcess::Line& line) {
      const MonotonicClock clock;
      const auto pool = DaemonPool::Connect(PoolOptions(path_), clock).value();
      const ObjectKey key = TestKey(pool->OpenNamespace(kPrefix).value(), static_cast<uint64_t>(getpid()));
      if (PutOne(*pool, key, kObjectBytes) != PutAnswer::kStored) return 2;
      line.Say();
      if (!line.Hear()) return 3;
      // The client may not know yet that the first daemon is gone; only the second, which is cold, stores the key anew.
      if (!Eventually([&] { return PutOne(*pool, key, kObjectBytes) == PutAnswer::kStored; })) return 4;
      line.Say();
      return line.Hear() && GetOne(*pool, key, kObjectBytes) == KeyAnswer::kPresent ? 0 : 5;
    }));
  }
  first.Say();
  ASSERT_TRUE(first.Hear());
  std::set<std::string> before;
  for (const auto& client : clients) client->Say();
  for (const auto& client : clients) ASSERT_TRUE(client->Hear());
  for (const auto& client : clients) {
    const auto files = MappedPools(client->pid());
    EXPECT_EQ(files.size(), 1u);
    before.insert(files.begin(), files.end());
  }
  EXPECT_EQ(before.size(), 1u);
  first.Signal(SIGKILL);
  EXPECT_EQ(first.Wait(), -SIGKILL);
  second.Say();  // Takes over the dead one's socket file.
  ASSERT_TRUE(second.Hear());
  std::set<std::string> after;
  for (const auto& client : clients) client->Say();
  for (const auto& client : clients) ASSERT_TRUE(client->Hear());
  for (const auto& client : clients) {
    const auto files = MappedPools(client->pid());
    EXPECT_EQ(files.size(), 1u) << "the old pool is still mapped";
    after.insert(files.begin(), files.end());
  }
  EXPECT_EQ(after.size(), 1u);
  EXPECT_NE(before, after);
  for (const auto& client : clients) client->Say();
  for (const auto& client : clients) EXPECT_EQ(client->Wait(), 0);
}

TEST_F(DaemonProcessTest, SigtermWaitsForACopyThatRunsAndGivesNothingNew) {
  TestProcess serving([&](const TestProcess::Line& line) { return ServeInProcess(line, path_, TestDaemonOptions()); });
  serving.Say();
  ASSERT_TRUE(serving.Hear());
  RawClient raw(path_);
  const ReserveReply reserved = raw.Reserve(1);
  serving.Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return access(path_.c_str(), F_OK) != 0; })) << "the socket file stays";
  EXPECT_FALSE(ClientSession::Connect(path_, kTestPatience).ok());
  PinReply pin;
  EXPECT_TRUE(absl::IsUnavailable(raw.session().Call(PinRequest{.keys = {raw.Key(1)}}, InTime(), pin)));
  EXPECT_EQ(raw.Commit(reserved, /*digest=*/1), PutAnswer::kStored);
  EXPECT_EQ(serving.Wait(), 0);
  EXPECT_NE(access((path_ + ".lock").c_str(), F_OK), 0);
}

TEST_F(DaemonProcessTest, DaemonThatStopsCostsACallNoMoreThanItsDeadline) {
  TestProcess serving([&](const TestProcess::Line& line) { return ServeInProcess(line, path_, TestDaemonOptions()); });
  serving.Say();
  ASSERT_TRUE(serving.Hear());
  DaemonPoolOptions options = PoolOptions(path_);
  options.call_deadline = absl::Milliseconds(200);
  const auto pool = DaemonPool::Connect(options, clock_).value();
  const ObjectKey key = TestKey(pool->OpenNamespace(kPrefix).value(), 1);
  ASSERT_EQ(PutOne(*pool, key, kObjectBytes), PutAnswer::kStored);
  serving.Signal(SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(serving.pid(), &status, WUNTRACED), serving.pid());
  std::array<KeyAnswer, 1> answers{};
  const MonotonicTime start = clock_.Now();
  EXPECT_TRUE(absl::IsUnavailable(pool->Probe(std::array{key}, answers)));
  EXPECT_GE(clock_.Now() - start, options.call_deadline);
  EXPECT_TRUE(absl::IsUnavailable(pool->Probe(std::array{key}, answers))) << "and the next ones cost nothing";
  serving.Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return GetOne(*pool, key, kObjectBytes) == KeyAnswer::kPresent; }));
}

}  // namespace
}  // namespace tenure::daemon
