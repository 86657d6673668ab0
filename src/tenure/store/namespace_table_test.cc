#include "tenure/store/namespace_table.h"

#include <gtest/gtest.h>

#include <string>

#include "tenure/store/pool.h"

namespace tenure::store {
namespace {

TEST(NamespaceTable, TheSameTextHasTheSameId) {
  NamespaceTable table(4);
  const auto a = table.Open("model@tp0");
  const auto b = table.Open("model@tp1");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(*a, *b);
  EXPECT_EQ(*table.Open("model@tp0"), *a);
  EXPECT_EQ(table.size(), 2);
  EXPECT_NE(table.TextHash(*a), table.TextHash(*b));
  EXPECT_TRUE(table.Contains(*b));
  EXPECT_FALSE(table.Contains(kv::NamespaceId(2)));
}

TEST(NamespaceTable, RefusesBeyondItsMaximumAndKeepsServingWhatItHas) {
  NamespaceTable table(1);
  const auto a = table.Open("a");
  EXPECT_EQ(table.Open("b").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*table.Open("a"), *a);
}

TEST(NamespaceTable, RefusesTextThatIsNoPrefix) {
  NamespaceTable table(4);
  EXPECT_EQ(table.Open("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Open(std::string("a\0b", 3)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Open(std::string(Pool::kNamespaceNameMax + 1, 'a')).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(table.Open(std::string(Pool::kNamespaceNameMax, 'a')).ok());
  EXPECT_EQ(table.size(), 1);
}

}  // namespace
}  // namespace tenure::store
