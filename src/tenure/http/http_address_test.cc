#include "tenure/http/http_address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"

namespace tenure::http {
namespace {

using ::testing::HasSubstr;

TEST(HttpAddress, AddressesAreRead) {
  EXPECT_EQ(ParseHttpAddress("--metrics", "9108")->host, "127.0.0.1");
  EXPECT_EQ(ParseHttpAddress("--metrics", "9108")->port, 9108);
  EXPECT_EQ(ParseHttpAddress("--metrics", "0.0.0.0:80")->host, "0.0.0.0");
  EXPECT_EQ(ParseHttpAddress("--metrics", "[::1]:80")->host, "::1");
  EXPECT_EQ(ParseHttpAddress("--metrics", "localhost:0")->port, 0);
}

TEST(HttpAddress, BadAddressesAreNamed) {
  for (const std::string text : {"", ":80", "::1:80", "a:b", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "[]:80"}) {
    const auto address = ParseHttpAddress("--metrics", text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(Message(address.status())), HasSubstr("--metrics \"" + text + "\"")) << text;
  }
}

TEST(HttpAddress, UrlsAreRead) {
  EXPECT_EQ(ParseHttpUrl("url", "http://10.0.0.1:8998")->host, "10.0.0.1");
  EXPECT_EQ(ParseHttpUrl("url", "http://10.0.0.1:8998")->port, 8998);
  EXPECT_EQ(ParseHttpUrl("url", "http://[fd00::1]:8998/")->host, "fd00::1");
  EXPECT_EQ(ParseHttpUrl("url", "http://prefill-0:1")->host, "prefill-0");
}

TEST(HttpAddress, BadUrlsAreNamed) {
  for (const std::string text : {"", "10.0.0.1:8998", "https://a:1", "http://", "http://host", "http://8998",
                                 "http://a:1/query", "http://a:0", "http://user@a:1", "http://a:1//", "http://a:x"}) {
    const auto address = ParseHttpUrl("remote_bootstrap_addr", text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_THAT(std::string(Message(address.status())), HasSubstr("remote_bootstrap_addr \"")) << text;
  }
}

TEST(HttpAddress, AnErrorQuotesNoMoreThanItsStart) {
  EXPECT_LT(Message(ParseHttpUrl("url", std::string(1'000'000, 'x')).status()).size(), 400u);
}

}  // namespace
}  // namespace tenure::http
