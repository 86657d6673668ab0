// The client against daemons that lie: nothing they send may end the client or make it touch memory that is not the
// pool's.
#include "tenure/daemon/client_session.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/daemon/client_objects_testing.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/listening_socket.h"
#include "tenure/daemon/test_daemon_testing.h"
#include "tenure/daemon/wire_put.h"
#include "tenure/store/copy_digest.h"
#include "tenure/store/namespace_table.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::PutAnswer;
using ::testing::HasSubstr;

constexpr uint64_t kMemoryBytes = 1 << 20;

// Takes one connection after the other and answers each message with what `answer` makes of it, and hello with `memory`
// beside. It ends the connection after an answer to a pin when `ends_after_pin`, and sets that to false when it has.
class LyingDaemon {
 public:
  using Answer = std::function<std::vector<std::byte>(const FrameHeader& header, std::span<const std::byte> body)>;

  LyingDaemon(const std::string& path, Answer answer, int memory, std::atomic<bool>* ends_after_pin = nullptr)
      : socket_(ListeningSocket::Bind({.path = path, .group = std::nullopt}).value()),
        answer_(std::move(answer)),
        memory_(memory),
        ends_after_pin_(ends_after_pin) {
    TENURE_CHECK(fcntl(socket_.fd(), F_SETFL, 0) == 0);
    TENURE_CHECK(socket_.Listen().ok());
    thread_ = std::thread([this] { Run(); });
  }
  ~LyingDaemon() {
    shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }

  int connections() const { return connections_; }  // So far; one after the other.

 private:
  void Run() {
    for (;;) {
      const FileDescriptor client(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.valid()) return;
      ++connections_;
      std::vector<std::byte> received;
      std::vector<std::byte> step(size_t{64} << 10);
      for (ssize_t size = 1; size > 0;) {
        size = recv(client.get(), step.data(), step.size(), 0);
        if (size > 0) received.insert(received.end(), step.begin(), step.begin() + size);
        if (!AnswerAll(client.get(), received)) break;
      }
    }
  }
  bool AnswerAll(int client, std::vector<std::byte>& received) {
    for (;;) {
      const auto header = ParseHeader(received);
      if (!header.ok() || !header->has_value()) return header.ok();
      const size_t whole = FrameHeader::kBytes + (*header)->body_bytes;
      if (received.size() < whole) return true;
      std::vector<std::byte> bytes =
          answer_(**header, std::span(received).subspan(FrameHeader::kBytes, (*header)->body_bytes));
      received.erase(received.begin(), received.begin() + static_cast<ptrdiff_t>(whole));
      if (bytes.empty()) continue;
      Send(client, bytes, (*header)->type == HelloRequest::kType ? memory_ : -1);
      if (ends_after_pin_ == nullptr || (*header)->type != PinRequest::kType) continue;
      shutdown(client, SHUT_RDWR);
      ends_after_pin_->store(false);
    }
  }
  static void Send(int client, std::vector<std::byte>& bytes, int memory) {
    iovec vector{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (memory >= 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
    }
    sendmsg(client, &message, MSG_NOSIGNAL);
  }

  ListeningSocket socket_;
  const Answer answer_;
  const int memory_;
  std::atomic<bool>* const ends_after_pin_;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

// A page whose first use waits until the daemon has ended the connection.
std::atomic<bool> connection_stands{true};
void* waiting_page = nullptr;
constexpr size_t kWaitingPageBytes = 4096;

void WaitForTheEnd(int /*signal*/) {
  while (connection_stands.load()) sched_yield();
  mprotect(waiting_page, kWaitingPageBytes, PROT_READ | PROT_WRITE);
}

template <typename M>
std::vector<std::byte> Reply(const FrameHeader& header, const M& message) {
  std::vector<std::byte> bytes;
  AppendFrame(message, header.request, bytes);
  return bytes;
}

HelloReply GoodHello() {
  return {.memory_bytes = kMemoryBytes, .held_bytes_max = kMemoryBytes, .object_bytes_max = kMemoryBytes};
}

class ClientSessionTest : public ::testing::Test {
 protected:
  absl::Status ConnectTo(LyingDaemon::Answer answer, int memory) {
    const LyingDaemon daemon(path_, std::move(answer), memory);
    return ClientSession::Connect(path_, kTestPatience).status();
  }
  // A client of a daemon that greets well and answers everything but names with `answer`.
  std::unique_ptr<DaemonPool> PoolOf(std::unique_ptr<LyingDaemon>& daemon, LyingDaemon::Answer answer,
                                     std::atomic<bool>* ends_after_pin = nullptr) {
    daemon = std::make_unique<LyingDaemon>(
        path_,
        [answer](const FrameHeader& header, std::span<const std::byte> body) {
          if (header.type == HelloRequest::kType) return Reply(header, GoodHello());
          if (header.type == OpenNamespaceRequest::kType) return Reply(header, OpenNamespaceReply{.name_space = 0});
          return answer(header, body);
        },
        memory_.fd(), ends_after_pin);
    DaemonPoolOptions options;
    options.socket_path = path_;
    options.call_deadline = kTestPatience;
    options.backoff_min = options.backoff_max = absl::Minutes(1);  // Each test sees one connection.
    return DaemonPool::Connect(options, clock_).value();
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("pool.sock");
  const MonotonicClock clock_;
  const SharedMemory memory_ = SharedMemory::Create({.size = Bytes(kMemoryBytes), .huge_pages = false}).value();
};

TEST_F(ClientSessionTest, OtherMajorVersionIsRefusedWithBothVersions) {
  const absl::Status status =
      ConnectTo([](const FrameHeader& header,
                   std::span<const std::byte>) { return Reply(header, HelloReply{.major = 3, .minor = 1}); },
                memory_.fd());
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("3.1"));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("1.0"));
}

TEST_F(ClientSessionTest, MemoryThatIsMissingOrAnotherSizeOrNotSealedIsRefused) {
  const auto hello = [](const FrameHeader& header, std::span<const std::byte>) { return Reply(header, GoodHello()); };
  EXPECT_THAT(std::string(Message(ConnectTo(hello, -1))), HasSubstr("no memory"));
  const FileDescriptor open_ended(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_ended.get(), kMemoryBytes), 0);
  EXPECT_THAT(std::string(Message(ConnectTo(hello, open_ended.get()))), HasSubstr("not sealed"));
  const SharedMemory small = SharedMemory::Create({.size = Bytes(4096), .huge_pages = false}).value();
  EXPECT_THAT(std::string(Message(ConnectTo(hello, small.fd()))), HasSubstr("4096"));
}

TEST_F(ClientSessionTest, NonsenseInsteadOfHelloIsAnError) {
  constexpr uint64_t kSeed = 3;
  Random random(kSeed);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> noise(1 + random.Below(200));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    noise[0] = std::byte{1};
    noise[1] = noise[2] = noise[3] = std::byte{0};  // A length that can be, so that more than the header is read.
    noise.resize(std::max<size_t>(noise.size(), 13));
    EXPECT_FALSE(
        ConnectTo([&noise](const FrameHeader&, std::span<const std::byte>) { return noise; }, memory_.fd()).ok())
        << "seed " << kSeed;
  }
}

TEST_F(ClientSessionTest, AnswersThatDoNotFitAreMissesAndEndTheSession) {
  const std::vector<std::function<std::vector<std::byte>(const FrameHeader&)>> lies = {
      [](const FrameHeader& header) { return Reply(header, ProbeReply()); },
      [](const FrameHeader& header) { return Reply(header, ProbeReply{.answers = {static_cast<KeyAnswer>(77)}}); },
      [](const FrameHeader& header) { return Reply(header, UnpinRequest()); },
      [](FrameHeader header) {
        return Reply({.request = header.request + 1}, ProbeReply{.answers = {KeyAnswer::kPresent}});
      },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    std::unique_ptr<LyingDaemon> daemon;
    const auto pool =
        PoolOf(daemon, [&](const FrameHeader& header, std::span<const std::byte>) { return lies[i](header); });
    const store::ObjectKey key = TestKey(pool->OpenNamespace("p").value(), 1);
    std::array<KeyAnswer, 1> answers{};
    EXPECT_TRUE(absl::IsUnavailable(pool->Probe(std::array{key}, answers))) << i;
    EXPECT_EQ(answers[0], KeyAnswer::kUnavailable) << i;
    // The client comes back at once, so that it is away can be over before it is seen.
    EXPECT_TRUE(Eventually([&daemon] { return daemon->connections() > 1; })) << i;
  }
}

TEST_F(ClientSessionTest, PlacesOutsideOfTheMemoryAreNeverTouched) {
  for (const uint64_t offset : {kMemoryBytes - 99, kMemoryBytes, uint64_t{1} << 63, kNoOffset - 50}) {
    std::unique_ptr<LyingDaemon> daemon;
    const auto pool =
        PoolOf(daemon, [&](const FrameHeader& header, std::span<const std::byte>) -> std::vector<std::byte> {
          if (header.type == PinRequest::kType) {
            return Reply(header, PinReply{.places = {{.answer = KeyAnswer::kPresent, .offset = offset, .size = 100}}});
          }
          return {};
        });
    const store::ObjectKey key = TestKey(pool->OpenNamespace("p").value(), 1);
    EXPECT_EQ(GetOne(*pool, key, 100), KeyAnswer::kUnavailable);
  }
  for (const uint64_t offset : {kMemoryBytes - 99, kMemoryBytes, kNoOffset - 50}) {
    std::unique_ptr<LyingDaemon> daemon;
    const auto pool = PoolOf(daemon, [&](const FrameHeader& header, std::span<const std::byte>) {
      return Reply(header, ReserveReply{.places = {{.answer = PutAnswer::kStored, .offset = offset}}});
    });
    const store::ObjectKey key = TestKey(pool->OpenNamespace("p").value(), 1);
    EXPECT_EQ(PutOne(*pool, key, 100), PutAnswer::kNotStored);
  }
}

TEST_F(ClientSessionTest, CopyDuringWhichTheDaemonEndedIsNoHit) {
  std::unique_ptr<LyingDaemon> daemon;
  uint64_t digest = 0;
  const auto pool = PoolOf(
      daemon,
      [&](const FrameHeader& header, std::span<const std::byte>) {
        const PinnedPlace place{
            .answer = KeyAnswer::kPresent, .offset = 0, .size = kWaitingPageBytes, .digest = digest};
        return Reply(header, PinReply{.batch = 1, .places = {place}});
      },
      &connection_stands);
  const store::ObjectKey key = TestKey(pool->OpenNamespace("p").value(), 1);
  const std::vector<std::byte> zeros(kWaitingPageBytes);
  store::NamespaceTable names(1);
  const uint64_t text_hash = names.TextHash(names.Open("p").value());
  digest = store::Digest(store::DigestSeed(text_hash, key.hash), zeros);

  waiting_page = mmap(nullptr, kWaitingPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(waiting_page, MAP_FAILED);
  struct sigaction before {};
  struct sigaction wait {};
  wait.sa_handler = WaitForTheEnd;
  ASSERT_EQ(sigaction(SIGSEGV, &wait, &before), 0);
  const std::array<store::Segment, 1> segments = {
      {{.data = static_cast<std::byte*>(waiting_page), .size = kWaitingPageBytes}}};
  const std::array<store::GetObject, 1> objects = {{{.key = key, .segments = segments}}};
  std::array<KeyAnswer, 1> answers{};
  const absl::Status status = pool->Get(objects, answers);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  EXPECT_FALSE(connection_stands.load());
  EXPECT_TRUE(absl::IsUnavailable(status)) << "the pages may have been given back in the middle of the copy";
  EXPECT_EQ(answers[0], KeyAnswer::kUnavailable);
  munmap(waiting_page, kWaitingPageBytes);
}

TEST(SharedMemory, TooMuchIsAnErrorThatNamesTheOption) {
  const auto memory = SharedMemory::Create({.size = Bytes(int64_t{1} << 60), .huge_pages = false});
  EXPECT_TRUE(absl::IsResourceExhausted(memory.status()));
  EXPECT_THAT(std::string(Message(memory.status())), HasSubstr("--memory"));
}

TEST(SharedMemory, PagesGivenBackReadAsZerosThroughOldMappings) {
  SharedMemory memory = SharedMemory::Create({.size = Bytes(kMemoryBytes), .huge_pages = false}).value();
  const SharedMapping mapping = SharedMapping::Map(memory.fd(), kMemoryBytes).value();
  mapping.bytes()[5000] = std::byte{7};
  memory.GiveBackPages();
  EXPECT_EQ(mapping.bytes()[5000], std::byte{0});
}

}  // namespace
}  // namespace tenure::daemon
