// What is read of a writer's connection, in any cuts.
#include "tenure/transfer/tcp_inbound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {
namespace {

constexpr uint64_t kSeed = 20261130;
constexpr uint64_t kReceiver = 77;

template <typename Head>
std::string Bytes(const Head& head) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head));
}

class TcpInboundTest : public ::testing::Test {
 protected:
  uint64_t base() const { return reinterpret_cast<uint64_t>(memory_.data()); }
  std::string Part(uint64_t post, uint64_t offset, const std::string& bytes, uint64_t total) const {
    return Bytes(TcpPart{post, base() + offset, bytes.size(), total}) + bytes;
  }
  void Take(std::string_view bytes) { inbound_.Take(map_, bytes); }
  void Greet() {
    Take(Bytes(TcpGreeting{.receiver = kReceiver}));
    ExpectAnswers({{kTcpGreeting, Verdict::kWritten}});
  }
  void ExpectAnswers(const std::vector<TcpAnswer>& answers) {
    std::string expected;
    for (const TcpAnswer& answer : answers) expected += Bytes(answer);
    EXPECT_EQ(inbound_.answers, expected);
    inbound_.answers.clear();
  }

  std::string memory_ = std::string(100, '.');
  const MemoryMap map_ = MemoryMap::Create("test", {{base() + 10, 80}}).value();
  TcpInbound inbound_{kReceiver};
};

TEST_F(TcpInboundTest, PostIsAnsweredWhenItIsWhole) {
  Greet();
  Take(Part(1, 10, "abc", 5));
  ExpectAnswers({});
  Take(Part(1, 88, "de", 5) + Part(2, 20, "f", 1));
  ExpectAnswers({{1, Verdict::kWritten}, {2, Verdict::kWritten}});
  EXPECT_EQ(memory_, std::string(10, '.') + "abc" + std::string(7, '.') + "f" + std::string(67, '.') + "de" +
                         std::string(10, '.'));
}

TEST_F(TcpInboundTest, PostThatIsGivenUpEndsWithTheNextOne) {
  Greet();
  Take(Part(1, 10, "abc", 50) + Part(2, 20, "f", 1));
  ExpectAnswers({{2, Verdict::kWritten}});
  EXPECT_EQ(inbound_.state(), TcpInbound::State::kOpen);
}

TEST_F(TcpInboundTest, PartsOutsideOfMemoryAndBeyondTheTotalAreRefusedBeforeAByteIsWritten) {
  const std::string fitting = Part(1, 10, "abc", 5);
  for (const std::string& refused :
       {Part(1, 9, "de", 5), Part(1, 89, "de", 5), Part(1, 20, "def", 5), Part(1, 20, "", 5), Part(1, 20, "de", 6),
        Bytes(TcpPart{1, base() + 10, UINT64_MAX, 5}), Bytes(TcpPart{1, UINT64_MAX, 2, 5})}) {
    TcpInbound inbound(kReceiver);
    inbound.Take(map_, Bytes(TcpGreeting{.receiver = kReceiver}) + fitting);
    const std::string before = memory_;
    inbound.answers.clear();
    inbound.Take(map_, refused + Part(2, 30, "g", 1));
    EXPECT_EQ(inbound.state(), TcpInbound::State::kRefused);
    EXPECT_EQ(inbound.answers, Bytes(TcpAnswer{1, Verdict::kOutside}));
    EXPECT_EQ(inbound.left(), 0u);
    EXPECT_EQ(memory_, before);
  }
}

TEST_F(TcpInboundTest, GreetingForAnotherReceiverIsRefused) {
  Take(Bytes(TcpGreeting{.receiver = kReceiver + 1}) + Part(1, 10, "abc", 3));
  ExpectAnswers({{kTcpGreeting, Verdict::kOtherReceiver}});
  EXPECT_EQ(inbound_.state(), TcpInbound::State::kRefused);
  EXPECT_EQ(memory_, std::string(100, '.'));
}

TEST_F(TcpInboundTest, OtherProtocolIsBroken) {
  Take("GET / HTTP/1.1\r\nHost: tenure\r\n\r\n");
  EXPECT_EQ(inbound_.state(), TcpInbound::State::kBroken);
  ExpectAnswers({});
}

TEST_F(TcpInboundTest, CutsMakeNoDifference) {
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (int64_t round = 0; round < RandomCases(2000); ++round) {
    std::string stream = Bytes(TcpGreeting{.receiver = kReceiver});
    std::string expected = memory_;
    std::string answers = Bytes(TcpAnswer{kTcpGreeting, Verdict::kWritten});
    for (uint64_t post = 1; post <= 5; ++post) {
      const uint64_t total = 1 + random.Below(20);
      for (uint64_t sent = 0; sent < total;) {
        const std::string bytes(1 + random.Below(total - sent), static_cast<char>('a' + random.Below(26)));
        const uint64_t offset = 10 + random.Below(81 - bytes.size());
        stream += Part(post, offset, bytes, total);
        expected.replace(offset, bytes.size(), bytes);
        sent += bytes.size();
      }
      answers += Bytes(TcpAnswer{post, Verdict::kWritten});
    }
    TcpInbound inbound(kReceiver);
    for (std::string_view rest = stream; !rest.empty();) {
      size_t size = 1 + random.Below(rest.size());
      if (inbound.left() > 0 && random.Chance(0.5)) {
        size = 1 + random.Below(std::min<uint64_t>(inbound.left(), rest.size()));
        std::copy_n(rest.begin(), size, reinterpret_cast<char*>(inbound.to()));
        inbound.Arrived(size);
      } else {
        inbound.Take(map_, rest.substr(0, size));
      }
      rest.remove_prefix(size);
    }
    EXPECT_EQ(memory_, expected);
    EXPECT_EQ(inbound.answers, answers);
  }
}

}  // namespace
}  // namespace tenure::transfer
