// Router and channels against each other, and against peers that misbehave, over loopback.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"
#include "tenure/handoff/channels.h"
#include "tenure/handoff/recorder_testing.h"
#include "tenure/handoff/router.h"
#include "tenure/handoff/zmq_socket.h"

namespace tenure::handoff {
namespace {

using pd::ChannelId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(10);

struct Incoming {
  std::string peer;
  std::string bytes;
};
struct Answer {
  uint64_t channel;
  std::string bytes;
};
struct Failure {
  uint64_t channel;
  absl::Status why;
  bool sent;
};

struct TestRouter {
  explicit TestRouter(const RouterOptions& options = {}) {
    auto started = Router::Start(options, [this](std::string peer, std::string bytes) {
      messages.Add({std::move(peer), std::move(bytes)});
      return std::nullopt;
    });
    EXPECT_TRUE(started.ok()) << started.status();
    router = std::move(started).value();
  }
  Recorder<Incoming> messages;
  std::unique_ptr<Router> router;
};

struct TestChannels {
  explicit TestChannels(const ChannelsOptions& options = {}) {
    auto started = Channels::Start(options, clock,
                                   {.on_answer =
                                        [this](ChannelId id, std::string bytes) {
                                          answers.Add({id.value(), std::move(bytes)});
                                        },
                                    .on_not_sent =
                                        [this](ChannelId id, const absl::Status& why) {
                                          failures.Add({id.value(), why, false});
                                        },
                                    .on_failed =
                                        [this](ChannelId id, const absl::Status& why) {
                                          failures.Add({id.value(), why, true});
                                        }});
    EXPECT_TRUE(started.ok()) << started.status();
    channels = std::move(started).value();
  }
  void Send(uint64_t id, const std::string& address, std::string bytes, absl::Duration patience = kLong) {
    channels->Send(
        {.channel = ChannelId(id), .address = address, .bytes = std::move(bytes), .deadline = clock.Now() + patience});
  }
  MonotonicClock clock;
  Recorder<Answer> answers;
  Recorder<Failure> failures;
  std::unique_ptr<Channels> channels;
};

// A peer that sends whatever frames a test wants.
struct RawPeer {
  explicit RawPeer(const std::string& address)
      : context(8),
        socket(ZmqSocket::Create(context, {.kind = ZmqSocketOptions::Kind::kDealer, .message_bytes_max = 1 << 20})
                   .value()) {
    EXPECT_TRUE(socket.Connect(address).ok());
  }
  void Send(const std::vector<std::string_view>& frames) {
    pollfd watched{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    while (!socket.Poll().out) ASSERT_GT(poll(&watched, 1, 60'000), 0);
    ASSERT_EQ(socket.Send(frames), ZmqSocket::Sent::kYes);
  }
  std::vector<std::string> Receive() {
    pollfd watched{.fd = socket.fd(), .events = POLLIN, .revents = 0};
    while (!socket.Poll().in) {
      if (poll(&watched, 1, 60'000) <= 0) return {"nothing came"};
    }
    return socket.Receive().value().frames;
  }
  ZmqContext context;
  ZmqSocket socket;
};

TEST(SideChannel, AnswersComeBackOnTheChannelThatAsked) {
  TestRouter p;
  TestChannels d;
  EXPECT_THAT(p.router->address(), HasSubstr("tcp://127.0.0.1:"));
  d.Send(1, p.router->address(), "pull one");
  d.Send(2, p.router->address(), "pull two");
  for (const Incoming& message : p.messages.WaitFor(2)) {
    p.router->Reply(message.peer, "continue " + message.bytes);
    p.router->Reply(message.peer, "finish " + message.bytes);
  }
  std::map<uint64_t, std::vector<std::string>> answers;
  for (const Answer& answer : d.answers.WaitFor(4)) answers[answer.channel].push_back(answer.bytes);
  EXPECT_THAT(answers[1], ::testing::ElementsAre("continue pull one", "finish pull one"));
  EXPECT_THAT(answers[2], ::testing::ElementsAre("continue pull two", "finish pull two"));
  EXPECT_EQ(p.router->stats().messages, 2);
  EXPECT_TRUE(WaitUntil([&] { return p.router->stats().replies == 4; }));
}

TEST(SideChannel, ThousandsOfMessagesFromTwoDecodersArrive) {
  constexpr uint64_t kMessages = 2'000;
  TestRouter p;
  TestChannels first;
  TestChannels second;
  for (uint64_t i = 1; i <= kMessages; ++i) {
    first.Send(i, p.router->address(), std::to_string(i));
    second.Send(i, p.router->address(), std::to_string(i));
    if (i % 200 != 0) continue;
    const auto messages = p.messages.WaitFor(2 * i);
    ASSERT_EQ(messages.size(), 2 * i);
    for (size_t j = messages.size() - 400; j < messages.size(); ++j) {
      p.router->Reply(messages[j].peer, messages[j].bytes);
    }
    for (TestChannels* d : {&first, &second}) {
      const auto answers = d->answers.WaitFor(i);
      ASSERT_EQ(answers.size(), i);
      for (size_t j = answers.size() - 200; j < answers.size(); ++j) {
        EXPECT_EQ(answers[j].bytes, std::to_string(answers[j].channel));
        d->channels->Close(ChannelId(answers[j].channel));
      }
    }
  }
  EXPECT_TRUE(first.failures.items().empty());
  EXPECT_TRUE(second.failures.items().empty());
}

TEST(SideChannel, MessageOfOtherThanOneFrameIsRefusedAndTheListenerLivesEdge28) {
  TestRouter p({.malformed_reply = "no"});
  RawPeer peer(p.router->address());
  peer.Send({"", "as a REQ sends it"});
  EXPECT_THAT(peer.Receive(), ElementsAre("", "no"));
  peer.Send({"a", "b", "c", "d"});
  EXPECT_THAT(peer.Receive(), ElementsAre("no"));
  peer.Send({"one frame"});
  const auto messages = p.messages.WaitFor(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].bytes, "one frame");
  EXPECT_EQ(p.router->stats().malformed_messages, 2);
}

TEST(SideChannel, BytesThatAreNoZeroMqAreNoMessageAndTheListenerLivesEdge28) {
  TestRouter p;
  const std::string address = p.router->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xFF'), std::string(64, '\0'),
        std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\1NULL", 16) + std::string(80, '\x7F')}) {
    const int raw = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = {.sin_family = AF_INET,
                      .sin_port = htons(static_cast<uint16_t>(port)),
                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                      .sin_zero = {}};
    ASSERT_EQ(connect(raw, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    static_cast<void>(send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    close(raw);
  }
  TestChannels d;
  d.Send(1, address, "pull");
  EXPECT_EQ(p.messages.WaitFor(1).at(0).bytes, "pull");
  EXPECT_EQ(p.router->stats().messages, 1);
}

TEST(SideChannel, WhatTheOwnerReturnsIsTheAnswer) {
  auto router = Router::Start({}, [](std::string, std::string bytes) { return "no " + bytes; });
  ASSERT_TRUE(router.ok());
  TestChannels d;
  d.Send(1, (*router)->address(), "pull");
  EXPECT_EQ(d.answers.WaitFor(1).at(0).bytes, "no pull");
}

TEST(SideChannel, AnEmptyFrameIsAMessage) {
  TestRouter p;
  RawPeer peer(p.router->address());
  peer.Send({""});
  const auto messages = p.messages.WaitFor(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].bytes, "");
}

TEST(SideChannel, AFrameBeyondTheMaximumEndsItsConnectionAlone) {
  TestRouter p;
  RawPeer big(p.router->address());
  big.Send({std::string(100'000'000, 'x')});
  RawPeer other(p.router->address());
  other.Send({"small"});
  const auto messages = p.messages.WaitFor(1);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].bytes, "small");
}

TEST(SideChannel, AMessageBeyondTheMaximumIsNotSent) {
  TestRouter p;
  TestChannels d;
  d.Send(1, p.router->address(), std::string(kMessageBytesMax + 1, 'x'));
  const auto failures = d.failures.WaitFor(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(failures[0].why)) << failures[0].why;
}

TEST(SideChannel, AMessageOfManyMegabytesArrives) {
  TestRouter p;
  TestChannels d;
  d.Send(1, p.router->address(), std::string(kMessageBytesMax, 'x'));
  EXPECT_EQ(p.messages.WaitFor(1).at(0).bytes, std::string(kMessageBytesMax, 'x'));
}

TEST(SideChannel, AnAnswerToAPeerThatIsGoneIsDroppedAndCounted) {
  TestRouter p;
  std::string peer;
  {
    TestChannels d;
    d.Send(1, p.router->address(), "pull");
    peer = p.messages.WaitFor(1).at(0).peer;
  }
  // The router learns of the end on its own time.
  EXPECT_TRUE(WaitUntil([&] {
    p.router->Reply(peer, "finish");
    return p.router->stats().dropped_replies > 0;
  }));
  p.router->Reply("never seen", "finish");
  TestChannels next;
  next.Send(1, p.router->address(), "still listening");
  EXPECT_EQ(p.messages.WaitFor(2).at(1).bytes, "still listening");
}

TEST(SideChannel, AClosedChannelHearsNothing) {
  TestRouter p;
  TestChannels d;
  d.Send(1, p.router->address(), "pull");
  const std::string peer = p.messages.WaitFor(1).at(0).peer;
  d.channels->Close(ChannelId(1));
  EXPECT_TRUE(WaitUntil([&] { return d.channels->num_open() == 0; }));
  p.router->Reply(peer, "late");
  d.Send(2, p.router->address(), "next");
  p.router->Reply(p.messages.WaitFor(2).at(1).peer, "answer");
  const auto answers = d.answers.WaitFor(1);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].channel, 2u);
  EXPECT_TRUE(d.failures.items().empty());
}

TEST(SideChannel, TheEndOfPFailsItsChannelsAtOnce) {
  auto p = std::make_unique<TestRouter>();
  TestChannels d;
  d.Send(1, p->router->address(), "pull");
  d.Send(2, p->router->address(), "pull");
  for (const Incoming& message : p->messages.WaitFor(2)) p->router->Reply(message.peer, "continue");
  d.answers.WaitFor(2);
  p.reset();
  const auto failures = d.failures.WaitFor(2);
  ASSERT_EQ(failures.size(), 2u);
  for (const Failure& failure : failures) {
    EXPECT_TRUE(absl::IsUnavailable(failure.why)) << failure.why;
    EXPECT_THAT(std::string(Message(failure.why)), HasSubstr("closed the connection"));
    EXPECT_TRUE(failure.sent);
  }
  EXPECT_EQ(d.channels->num_open(), 0u);
}

TEST(SideChannel, APThatIsNotThereFailsAfterTheTimeToConnect) {
  std::string address;
  { address = TestRouter().router->address(); }
  TestChannels d({.connect_timeout = absl::Milliseconds(200)});
  d.Send(1, address, "pull");
  const auto failures = d.failures.WaitFor(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(failures[0].why)) << failures[0].why;
  EXPECT_THAT(std::string(Message(failures[0].why)), HasSubstr(address + " cannot be reached"));
  EXPECT_FALSE(failures[0].sent);
}

TEST(SideChannel, ASilentPFailsAtTheDeadline) {
  TestRouter p;
  TestChannels d;
  d.Send(1, p.router->address(), "pull", absl::Milliseconds(300));
  const auto failures = d.failures.WaitFor(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(failures[0].why)) << failures[0].why;
  EXPECT_TRUE(failures[0].sent);
  EXPECT_EQ(p.messages.items().size(), 1u);
}

TEST(SideChannel, ChannelsBeyondTheMaximumFailAtOnce) {
  TestRouter p;
  TestChannels d({.channels_max = 2});
  for (const uint64_t id : {1, 2, 3}) d.Send(id, p.router->address(), "pull");
  const auto failures = d.failures.WaitFor(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].channel, 3u);
  EXPECT_TRUE(absl::IsResourceExhausted(failures[0].why)) << failures[0].why;
  EXPECT_FALSE(failures[0].sent);
}

TEST(SideChannel, AnAddressThatIsNoneFailsAtOnce) {
  TestChannels d;
  uint64_t id = 0;
  for (const std::string address : {"", "nonsense", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:65537",
                                    "http://127.0.0.1:1", "ipc://file", "inproc://inside"}) {
    d.Send(++id, address, "pull");
  }
  const auto failures = d.failures.WaitFor(id);
  ASSERT_EQ(failures.size(), id);
  for (const Failure& failure : failures) EXPECT_TRUE(absl::IsInvalidArgument(failure.why)) << failure.why;
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

TEST(SideChannel, SocketsNeverPileUp) {
  TestRouter p;
  TestChannels d;
  d.Send(1, p.router->address(), "first");
  p.messages.WaitFor(1);
  d.channels->Close(ChannelId(1));
  const size_t before = OpenDescriptors();
  for (uint64_t id = 2; id <= 501; ++id) {
    d.Send(id, p.router->address(), "pull");
    if (id % 2 == 0) p.messages.WaitFor(p.messages.items().size() + 1);
    d.channels->Close(ChannelId(id));
  }
  EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors() <= before; })) << OpenDescriptors() << " from " << before;
}

TEST(SideChannel, AnIpv6AddressIsBracketed) {
  const auto router = Router::Start({.host = "::1"}, [](std::string, std::string bytes) { return bytes; });
  if (!router.ok()) {  // A machine without IPv6.
    EXPECT_THAT(std::string(Message(router.status())), HasSubstr("tcp://[::1]:"));
    return;
  }
  EXPECT_THAT((*router)->address(), HasSubstr("tcp://[::1]:"));
  TestChannels d;
  d.Send(1, (*router)->address(), "pull");
  EXPECT_EQ(d.answers.WaitFor(1).at(0).bytes, "pull");
}

TEST(SideChannel, AnAddressThatIsTakenIsNamed) {
  TestRouter p;
  const std::string address = p.router->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const auto second = Router::Start({.port = port}, [](std::string, std::string) { return std::nullopt; });
  EXPECT_TRUE(absl::IsInvalidArgument(second.status()));
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr(address));
}

TEST(SideChannel, APortThatIsNoneIsNotListenedOn) {
  for (const int port : {-1, 65'536}) {
    const auto router = Router::Start({.port = port}, {});
    EXPECT_THAT(std::string(Message(router.status())), HasSubstr(fmt::format("port is {}", port)));
  }
}

class CurveTest : public ::testing::Test {
 protected:
  // Whether a message of D reaches P.
  static bool Talks(const RouterOptions& router, const ChannelsOptions& channels) {
    TestRouter p(router);
    ChannelsOptions options = channels;
    options.connect_timeout = absl::Milliseconds(500);
    TestChannels d(options);
    d.Send(1, p.router->address(), "secret", kLong);
    WaitUntil([&] { return !p.messages.items().empty() || !d.failures.items().empty(); });
    EXPECT_NE(p.messages.items().empty(), d.failures.items().empty());
    for (const Failure& failure : d.failures.items()) {
      EXPECT_FALSE(failure.sent);
      EXPECT_THAT(std::string(Message(failure.why)), HasSubstr("CURVE keys of one pair or neither"));
    }
    return !p.messages.items().empty();
  }
  const CurveKeys keys_ = MakeCurveKeys().value();
  const CurveKeys others_ = MakeCurveKeys().value();
};

TEST_F(CurveTest, OnlyTheSameKeysTalk) {
  EXPECT_TRUE(Talks({}, {}));
  EXPECT_TRUE(Talks({.curve_secret_key = keys_.secret_key}, {.curve_server_key = keys_.public_key}));
  EXPECT_FALSE(Talks({.curve_secret_key = keys_.secret_key}, {.curve_server_key = others_.public_key}));
  EXPECT_FALSE(Talks({.curve_secret_key = keys_.secret_key}, {}));
  EXPECT_FALSE(Talks({}, {.curve_server_key = keys_.public_key}));
}

TEST_F(CurveTest, AKeyThatIsNoneIsRefusedWithoutBeingShown) {
  const std::string bad = "not a key";
  const auto router = Router::Start({.curve_secret_key = bad}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(router.status())) << router.status();
  EXPECT_THAT(std::string(Message(router.status())), ::testing::Not(HasSubstr(bad)));
  const MonotonicClock clock;
  EXPECT_TRUE(absl::IsInvalidArgument(Channels::Start({.curve_server_key = bad}, clock, {}).status()));
}

}  // namespace
}  // namespace tenure::handoff
