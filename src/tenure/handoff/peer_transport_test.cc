#include "tenure/handoff/peer_transport.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::handoff {
namespace {

TEST(PeerTransport, OwnTransportsTravelInTheirField) {
  const pd::TransportAddress address{.kind = "local", .address = "place", .memory = {}};
  pd::Pull pull;
  pull.remote_hostname = "host";
  pull.remote_port = 7;
  ASSERT_TRUE(WriteTransport(address, pull).ok());
  EXPECT_EQ(pull.remote_hostname, "host");
  EXPECT_EQ(ReadTransport(pull), address);
}

TEST(PeerTransport, MooncakeTravelsWhereStockHasIt) {
  for (const std::string text : {"10.0.0.1:15000", "[fd00::1]:15000"}) {
    pd::Pull pull;
    ASSERT_TRUE(WriteTransport({.kind = "mooncake", .address = text, .memory = {}}, pull).ok());
    EXPECT_EQ(pull.remote_port, 15000);
    EXPECT_EQ(pull.transport, pd::TransportAddress());
    EXPECT_EQ(ReadTransport(pull), (pd::TransportAddress{.kind = "mooncake", .address = text, .memory = {}}));
  }
}

TEST(PeerTransport, AHostThatIsBracketedAlreadyStaysSo) {
  pd::Pull pull;
  pull.remote_hostname = "[fd00::1]";
  pull.remote_port = 1;
  EXPECT_EQ(ReadTransport(pull).address, "[fd00::1]:1");
}

TEST(PeerTransport, AMooncakeAddressThatIsNoneIsRefused) {
  pd::Pull pull;
  EXPECT_TRUE(absl::IsInvalidArgument(WriteTransport({.kind = "mooncake", .address = "x", .memory = {}}, pull)));
}

}  // namespace
}  // namespace tenure::handoff
