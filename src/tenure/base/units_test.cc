#include "tenure/base/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace tenure {
namespace {

using SlotId = Id<struct SlotTag, uint32_t>;

template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};

static_assert(Addable<Tokens, Tokens>);
static_assert(!Addable<Tokens, Bytes>, "tokens are never added to bytes");
static_assert(!Addable<Tokens, int64_t>, "a bare number has no unit");
static_assert(!Addable<SlotId, SlotId>, "an id has no arithmetic");
static_assert(!std::is_convertible_v<int64_t, Tokens>, "explicit in");
static_assert(!std::is_convertible_v<Tokens, int64_t>, "spelled out");

TEST(Quantity, HasTheArithmeticOfItsUnit) {
  Tokens tokens(10);
  tokens += Tokens(5);
  tokens -= Tokens(1);
  EXPECT_EQ(tokens, Tokens(14));
  EXPECT_EQ(tokens * 3, Tokens(42));
  EXPECT_EQ(tokens / Tokens(4), 3);
  EXPECT_EQ(tokens % Tokens(4), Tokens(2));
  EXPECT_EQ(Tokens(3) - Tokens(5), Tokens(-2));
  EXPECT_LT(Tokens(3), Tokens(5));
}

TEST(Quantity, RoundsToWholeBlocks) {
  EXPECT_EQ(CeilDiv(Tokens(0), Tokens(16)), 0);
  EXPECT_EQ(CeilDiv(Tokens(1), Tokens(16)), 1);
  EXPECT_EQ(CeilDiv(Tokens(16), Tokens(16)), 1);
  EXPECT_EQ(CeilDiv(Tokens(17), Tokens(16)), 2);
  EXPECT_EQ(RoundDown(Tokens(31), Tokens(16)), Tokens(16));
  EXPECT_EQ(RoundDown(Tokens(32), Tokens(16)), Tokens(32));
}

TEST(Id, ComparesAndHashesAsItsNumber) {
  EXPECT_EQ(SlotId(), SlotId(0));
  EXPECT_LT(SlotId(1), SlotId(2));
  EXPECT_EQ(std::hash<SlotId>{}(SlotId(7)), std::hash<uint32_t>{}(7));
}

}  // namespace
}  // namespace tenure
