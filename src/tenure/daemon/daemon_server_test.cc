// The daemon's shell towards clients that misbehave, and its place in the file system.
#include "tenure/daemon/daemon_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/client_session.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/daemon/unix_address.h"
#include "tenure/daemon/wire_put.h"

namespace tenure::daemon {
namespace {

using ::testing::HasSubstr;

MonotonicTime InTime() { return MonotonicClock().Now() + kTestPatience; }

// A socket to the daemon and nothing else.
class RawSocket {
 public:
  explicit RawSocket(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = UnixAddress(path).value();
    TENURE_CHECK(connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  int fd() const { return fd_.get(); }
  template <typename M>
  void Send(const M& message) {
    std::vector<std::byte> frame;
    AppendFrame(message, 1, frame);
    SendBytes(frame);
  }
  void SendBytes(std::span<const std::byte> bytes) { send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Everything until the daemon says no more.
  std::vector<std::byte> ReadToEnd() {
    std::vector<std::byte> all;
    std::vector<std::byte> step(size_t{64} << 10);
    for (ssize_t size = 1; size > 0;) {
      size = recv(fd_.get(), step.data(), step.size(), 0);
      if (size > 0) all.insert(all.end(), step.begin(), step.begin() + size);
    }
    return all;
  }
  void Close() { fd_ = FileDescriptor(); }

 private:
  FileDescriptor fd_;
};

ErrorReply LastError(const std::vector<std::byte>& bytes) {
  std::span<const std::byte> rest = bytes;
  ErrorReply error;
  for (;;) {
    const auto header = ParseHeader(rest);
    if (!header.ok() || !header->has_value()) return error;
    if ((*header)->type == ErrorReply::kType)
      DecodeBody(rest.subspan(FrameHeader::kBytes, (*header)->body_bytes), error);
    rest = rest.subspan(FrameHeader::kBytes + (*header)->body_bytes);
  }
}

struct Unknown {
  static constexpr uint16_t kType = 999;
  template <typename Self, typename Archive>
  static void Fields(Self& /*self*/, Archive& /*archive*/) {}
};

class DaemonServerTest : public ::testing::Test {
 protected:
  void Start(const TestDaemonOptions& options = {}) { daemon_ = std::make_unique<TestDaemon>(path_, options, clock_); }
  std::unique_ptr<ClientSession> Session() { return ClientSession::Connect(path_, kTestPatience).value(); }

  const TempFolder folder_;
  const std::string path_ = folder_.File("pool.sock");
  const MonotonicClock clock_;
  std::unique_ptr<TestDaemon> daemon_;
};

TEST_F(DaemonServerTest, SecondDaemonOnTheSameSocketIsRefusedByName) {
  Start();
  const auto second = ListeningSocket::Bind({.path = path_, .group = std::nullopt});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr(path_));
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr(fmt::format("process {}", getpid())));
  EXPECT_NE(Session(), nullptr) << "the first one still serves";
}

TEST_F(DaemonServerTest, StaleSocketFileIsTakenOver) {
  {
    const FileDescriptor dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = UnixAddress(path_).value();
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  std::ofstream(path_ + ".lock") << "1234";
  Start();
  EXPECT_NE(Session(), nullptr);
}

TEST_F(DaemonServerTest, SocketIsForItsUserAloneAndGoesAtTheEnd) {
  Start();
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
  daemon_->Stop();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
  EXPECT_EQ(access((path_ + ".lock").c_str(), F_OK), 0) << "its memory is still taken";
  daemon_.reset();
  EXPECT_NE(access((path_ + ".lock").c_str(), F_OK), 0);
}

TEST_F(DaemonServerTest, GroupOptionOpensTheSocketToTheGroup) {
  const auto socket = ListeningSocket::Bind({.path = path_, .group = getegid()}).value();
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0660u);
  EXPECT_EQ(status.st_gid, getegid());
}

TEST_F(DaemonServerTest, PathsThatCanHoldNoSocketAreRefused) {
  EXPECT_THAT(std::string(Message(CheckSocketPath(""))), HasSubstr("--socket"));
  EXPECT_THAT(std::string(Message(CheckSocketPath(std::string(108, 'x')))), HasSubstr("107"));
  EXPECT_THAT(std::string(Message(CheckSocketPath(folder_.File("no/such/pool.sock")))), HasSubstr("no folder"));
  std::ofstream(path_) << "not a socket";
  EXPECT_THAT(std::string(Message(CheckSocketPath(path_))), HasSubstr("another kind"));
  EXPECT_FALSE(ListeningSocket::Bind({.path = path_, .group = std::nullopt}).ok());
  EXPECT_EQ(access(path_.c_str(), F_OK), 0) << "a file of another kind is not removed";
}

TEST_F(DaemonServerTest, OtherMajorVersionIsRefusedWithBothVersions) {
  Start();
  RawSocket raw(path_);
  raw.Send(HelloRequest{.major = kWireMajor + 1, .minor = 9});
  const ErrorReply error = LastError(raw.ReadToEnd());
  EXPECT_EQ(error.code, ErrorCode::kVersion);
  EXPECT_THAT(error.text, HasSubstr("2.9"));
  EXPECT_THAT(error.text, HasSubstr("1.0"));
}

TEST_F(DaemonServerTest, UnknownMessageIsUnsupportedAndTheConnectionGoesOn) {
  Start();
  const auto session = Session();
  ProbeReply reply;
  EXPECT_TRUE(absl::IsUnimplemented(session->Call(Unknown(), InTime(), reply)));
  StatsReply stats;
  EXPECT_TRUE(session->Call(StatsRequest(), InTime(), stats).ok());
}

TEST_F(DaemonServerTest, MessagesBeforeHelloEndTheConnection) {
  Start();
  RawSocket raw(path_);
  raw.Send(StatsRequest());
  EXPECT_EQ(LastError(raw.ReadToEnd()).code, ErrorCode::kProtocol);
}

TEST_F(DaemonServerTest, RandomBytesEndTheConnectionAndNothingElse) {
  Start();
  const auto good = Session();
  constexpr uint64_t kSeed = 11;
  Random random(kSeed);
  for (int i = 0; i < 200; ++i) {
    RawSocket raw(path_);
    if (i % 2 == 0) raw.Send(HelloRequest());
    std::vector<std::byte> noise(1 + random.Below(300));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    raw.SendBytes(noise);
  }
  StatsReply stats;
  EXPECT_TRUE(good->Call(StatsRequest(), InTime(), stats).ok()) << "seed " << kSeed;
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().clients == 1; })) << "seed " << kSeed;
}

TEST_F(DaemonServerTest, ClientThatIsCutOffKeepsItsReservationUntilItIsGone) {
  Start();
  auto session = Session();
  OpenNamespaceReply opened;
  ASSERT_TRUE(session->Call(OpenNamespaceRequest{.prefix = "p"}, InTime(), opened).ok());
  ReserveReply reserved;
  const ReserveObject object{.key = TestKey(store::NamespaceId(opened.name_space), 1), .size = 100, .parent = {}};
  ASSERT_TRUE(session->Call(ReserveRequest{.objects = {object}}, InTime(), reserved).ok());
  ProbeReply reply;
  const HelloRequest second_hello;
  EXPECT_FALSE(session->Call(second_hello, InTime(), reply).ok());
  ASSERT_TRUE(Eventually([&] { return daemon_->server().Stats().clients_cut_off_total == 1; }));
  EXPECT_EQ(daemon_->pool().Stats().held.writing, 1) << "it may still copy";
  session.reset();
  EXPECT_TRUE(Eventually([&] { return daemon_->pool().Stats().held.writing == 0; }));
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().clients == 0; }));
}

TEST_F(DaemonServerTest, ClientThatReadsNoAnswersIsCutOffAtTheBound) {
  Start();
  RawSocket greedy(path_);
  greedy.Send(HelloRequest());
  std::vector<std::byte> flood;
  for (uint32_t i = 0; i < 2000; ++i) AppendFrame(StatsRequest(), i, flood);
  const auto other = Session();
  StatsReply stats;
  // Each round asks for half a megabyte of answers and takes none.
  ASSERT_TRUE(Eventually([&] {
    const ssize_t sent = send(greedy.fd(), flood.data(), flood.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    EXPECT_TRUE(other->Call(StatsRequest(), InTime(), stats).ok());
    EXPECT_LE(daemon_->server().Stats().unsent_bytes.value(), static_cast<int64_t>(kUnsentBytesMax + (1u << 20)));
    return sent < 0 || daemon_->server().Stats().clients_cut_off_total == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().clients_cut_off_total == 1; }));
  greedy.Close();
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().clients == 1; }));
}

TEST_F(DaemonServerTest, ClientThatAsksForMuchGetsOneAnswerATurn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  FileDescriptor served(ends[0]);
  const FileDescriptor client(ends[1]);
  store::EmbeddedPoolOptions pool_options;
  pool_options.capacity = pool_options.slab_bytes = Bytes(1 << 20);
  pool_options.memory = store::MemoryKind::kVirtual;
  const auto pool = store::EmbeddedPool::Create(pool_options, clock_).value();
  const SharedMemory memory = SharedMemory::Create({.size = Bytes(1 << 20), .huge_pages = false}).value();
  DaemonState state;
  DaemonConnection connection(std::move(served), Peer(), memory.fd(), *pool, clock_, state);
  std::vector<std::byte> frames;
  AppendFrame(HelloRequest(), 0, frames);
  for (uint32_t i = 1; i <= 3; ++i) AppendFrame(OpenNamespaceRequest{.prefix = "p"}, i, frames);
  frames.resize(frames.size() - 1);
  ASSERT_EQ(send(client.get(), frames.data(), frames.size(), 0), static_cast<ssize_t>(frames.size()));
  for (int64_t turn = 1; turn <= 3; ++turn) {
    connection.Read();
    EXPECT_EQ(state.messages_total, turn);
    EXPECT_TRUE(connection.has_more());
  }
  connection.Read();
  EXPECT_EQ(state.messages_total, 3) << "the last message is not whole";
  EXPECT_FALSE(connection.has_more());
}

TEST_F(DaemonServerTest, MessageThatComesInPiecesIsOneMessage) {
  Start();
  RawSocket raw(path_);
  std::vector<std::byte> frames;
  AppendFrame(HelloRequest(), 1, frames);
  AppendFrame(StatsRequest(), 2, frames);
  for (const std::byte& byte : frames) raw.SendBytes({&byte, 1});
  shutdown(raw.fd(), SHUT_WR);
  const std::vector<std::byte> answers = raw.ReadToEnd();
  ASSERT_GT(answers.size(), FrameHeader::kBytes);
  EXPECT_EQ(ParseHeader(answers).value()->type, HelloReply::kType);
  EXPECT_TRUE(Eventually([&] { return daemon_->server().Stats().messages_total == 2; }));
}

TEST_F(DaemonServerTest, ClientsAboveTheMaximumAreRefused) {
  TestDaemonOptions options;
  options.server.clients_max = 2;
  Start(options);
  auto first = Session();
  const auto second = Session();
  const absl::Status refused = ClientSession::Connect(path_, kTestPatience).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << "so that it is tried again";
  EXPECT_NE(Message(refused).find("--clients-max"), std::string_view::npos) << refused;
  EXPECT_EQ(daemon_->server().Stats().clients_refused_total, 1);
  first.reset();
  EXPECT_TRUE(Eventually([&] { return ClientSession::Connect(path_, kTestPatience).ok(); }));
}

TEST_F(DaemonServerTest, HalfAHelloHoldsNobodyUp) {
  Start();
  RawSocket raw(path_);
  std::vector<std::byte> frame;
  AppendFrame(HelloRequest(), 1, frame);
  raw.SendBytes(std::span(frame).first(5));
  EXPECT_NE(Session(), nullptr);
}

TEST_F(DaemonServerTest, BadServerOptionsAreNamed) {
  store::EmbeddedPoolOptions pool_options;
  pool_options.capacity = Bytes(64 << 20);
  pool_options.memory = store::MemoryKind::kVirtual;
  const auto pool = store::EmbeddedPool::Create(pool_options, clock_).value();
  DaemonServerOptions options{.closed = true, .object_bytes_max = Bytes(1 << 20), .held_bytes_max = Bytes(1)};
  const auto server =
      DaemonServer::Create(options, *pool, SharedMemory::Create({.size = Bytes(1 << 20)}).value(),
                           ListeningSocket::Bind({.path = path_, .group = std::nullopt}).value(), clock_);
  EXPECT_THAT(std::string(Message(server.status())), HasSubstr("held_bytes_max"));
}

}  // namespace
}  // namespace tenure::daemon
