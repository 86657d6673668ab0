#include "tenure/base/text.h"

#include <gtest/gtest.h>

namespace tenure {
namespace {

TEST(Text, WellFormedUtf8IsThat) {
  for (const char* good : {"", "plain", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  // Lone and missing continuations, overlong forms, halves of surrogate pairs, past the last code point.
  for (const char* bad : {"\x80", "\xC2", "a\xE2\x82", "\xC2z", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                          "\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(Text, OneLineKeepsWhatCanBeShown) {
  EXPECT_EQ(OneLine("", 10), "");
  EXPECT_EQ(OneLine("plain \u00e4\u20ac\U0001f600", 100), "plain \u00e4\u20ac\U0001f600");
}

TEST(Text, OneLineHasNoControlCharacterAndNoByteThatIsNotUtf8) {
  EXPECT_EQ(OneLine("a\r\nb\tc\x7F", 100), "a??b?c?");
  EXPECT_EQ(OneLine("\u0085\u2028\u2029z", 100), "???z");
  EXPECT_EQ(OneLine("\xFF\xE2\x82", 100), "???");
  EXPECT_EQ(OneLine(std::string_view("\0x", 2), 100), "?x");
}

TEST(Text, OneLineIsCutBetweenCharacters) {
  EXPECT_EQ(OneLine("abcd", 4), "abcd");
  EXPECT_EQ(OneLine("abcde", 4), "abcd...");
  EXPECT_EQ(OneLine("ab\u20ac", 4), "ab...");
}

}  // namespace
}  // namespace tenure
