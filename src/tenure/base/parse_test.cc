#include "tenure/base/parse.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/base/status.h"

namespace tenure {
namespace {

int64_t Size(std::string_view text) {
  const auto size = ParseSize("--capacity", text);
  EXPECT_TRUE(size.ok()) << text << ": " << size.status();
  return size.ok() ? size->value() : -1;
}

TEST(ParseSize, BinaryUnitsArePowersOf1024AndDecimalUnitsOf1000) {
  EXPECT_EQ(Size("1KiB"), 1024);
  EXPECT_EQ(Size("3MiB"), 3 * 1024 * 1024);
  EXPECT_EQ(Size("512GiB"), int64_t{512} << 30);
  EXPECT_EQ(Size("2TiB"), int64_t{2} << 40);
  EXPECT_EQ(Size("1kB"), 1000);
  EXPECT_EQ(Size("7MB"), 7'000'000);
  EXPECT_EQ(Size("512GB"), 512'000'000'000);
  EXPECT_EQ(Size("1TB"), 1'000'000'000'000);
  EXPECT_EQ(Size("12B"), 12);
  EXPECT_EQ(Size("12"), 12);
  EXPECT_EQ(Size("0"), 0);
}

TEST(ParseSize, TakesOneBlankAndADecimalPoint) {
  EXPECT_EQ(Size("1.5GiB"), (int64_t{3} << 30) / 2);
  EXPECT_EQ(Size("10 MiB"), int64_t{10} << 20);
  EXPECT_EQ(Size("0.001kB"), 1);
  EXPECT_EQ(Size("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(Size("8388607TiB"), int64_t{8388607} << 40);
}

TEST(ParseSize, RefusesWhatIsNotASizeAndNamesIt) {
  for (const std::string text : {"",
                                 "-1",
                                 "+1",
                                 "10 apples",
                                 "GiB",
                                 "1.GiB",
                                 ".5GiB",
                                 "1..5GiB",
                                 "1.5.2GiB",
                                 "10  MiB",
                                 "10MiB ",
                                 " 10MiB",
                                 "1e3",
                                 "0x10",
                                 "10mib",
                                 "10KB",
                                 "1,5GiB",
                                 "unlimited",
                                 "9223372036854775808",
                                 "8388608TiB",
                                 "99999999999999999999999GiB",
                                 "1.5B",
                                 "0.0001kB",
                                 "10\nGiB",
                                 "10 "}) {
    const auto size = ParseSize("--capacity", text);
    ASSERT_FALSE(size.ok()) << text;
    const std::string message(Message(size.status()));
    EXPECT_NE(message.find("--capacity"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_EQ(Message(ParseSize("--capacity", "10 apples").status()),
            "--capacity \"10 apples\": give a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 512GiB");
}

TEST(ParseSize, BoundsWhatItQuotes) {
  EXPECT_LT(Message(ParseSize("x", std::string(100'000, 'y')).status()).size(), 300u);
}

TEST(ParseDuration, ReadsEveryUnitExactly) {
  const auto duration = [](std::string_view text) { return ParseDuration("--lease-ttl", text).value(); };
  EXPECT_EQ(duration("5ns"), absl::Nanoseconds(5));
  EXPECT_EQ(duration("5us"), absl::Microseconds(5));
  EXPECT_EQ(duration("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(duration("10s"), absl::Seconds(10));
  EXPECT_EQ(duration("1.5s"), absl::Milliseconds(1500));
  EXPECT_EQ(duration("2m"), absl::Minutes(2));
  EXPECT_EQ(duration("2min"), absl::Minutes(2));
  EXPECT_EQ(duration("24h"), absl::Hours(24));
  EXPECT_EQ(duration("0s"), absl::ZeroDuration());
  EXPECT_EQ(duration("87600h"), absl::Hours(87600));
}

TEST(ParseDuration, RefusesAMissingUnitASignAndTooMuch) {
  for (const char* text :
       {"", "10", "-1s", "1.5ns", "10 s", "1d", "s", "87601h", "9223372036854775808ns", "1e3s", "1h30m"}) {
    EXPECT_FALSE(ParseDuration("--lease-ttl", text).ok()) << text;
  }
}

TEST(ParseCount, IsBoundedAndWhole) {
  EXPECT_EQ(ParseCount("--requests", "6000", 1, 10'000).value(), 6000);
  EXPECT_EQ(ParseCount("--requests", "9223372036854775807", 0, INT64_MAX).value(), INT64_MAX);
  for (const char* text :
       {"", "0", "-1", "+5", "10001", "1.0", "1.5", "5 ", "5x", "9223372036854775808", "18446744073709551616"}) {
    EXPECT_FALSE(ParseCount("--requests", text, 1, 10'000).ok()) << text;
  }
  EXPECT_EQ(Message(ParseCount("--requests", "-1", 1, 10'000).status()),
            "--requests \"-1\": give a whole number from 1 to 10000");
}

}  // namespace
}  // namespace tenure
