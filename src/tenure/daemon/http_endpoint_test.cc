// The address texts; the pages themselves are tested on the program (tests/e2e/daemon_metrics_test.sh).
#include "tenure/daemon/http_endpoint.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

TEST(HttpEndpoint, AddressesAreRead) {
  EXPECT_EQ(ParseHttpAddress("--metrics", "9108")->host, "127.0.0.1");
  EXPECT_EQ(ParseHttpAddress("--metrics", "9108")->port, 9108);
  EXPECT_EQ(ParseHttpAddress("--metrics", "0.0.0.0:80")->host, "0.0.0.0");
  EXPECT_EQ(ParseHttpAddress("--metrics", "[::1]:80")->host, "::1");
  EXPECT_EQ(ParseHttpAddress("--metrics", "localhost:0")->port, 0);
}

TEST(HttpEndpoint, BadAddressesAreNamed) {
  for (const std::string text : {"", ":80", "::1:80", "a:b", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "[]:80"}) {
    const auto address = ParseHttpAddress("--metrics", text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(Message(address.status())), ::testing::HasSubstr("--metrics \"" + text + "\"")) << text;
  }
}

TEST(HttpEndpoint, AddressOfAnotherMachineCannotBeListenedOn) {
  const auto endpoint = HttpEndpoint::Start("--metrics", {.host = "192.0.2.1", .port = 9108}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(endpoint.status()));
  EXPECT_THAT(std::string(Message(endpoint.status())), ::testing::HasSubstr("192.0.2.1:9108"));
}

}  // namespace
}  // namespace tenure::daemon
