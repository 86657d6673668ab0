#include "tenure/kv/presence_table.h"

#include <gtest/gtest.h>

namespace tenure::kv {
namespace {

TEST(PresenceTable, KnowsWhatWasSetAndNothingElse) {
  PresenceTable table(2);
  table.Reset(3);
  table.Set({GroupIndex(1), HashIndex(2)}, Presence::kPresent);
  table.Set({GroupIndex(0), HashIndex(2)}, Presence::kAbsent);
  EXPECT_EQ(table.Get({GroupIndex(1), HashIndex(2)}), Presence::kPresent);
  EXPECT_EQ(table.Get({GroupIndex(0), HashIndex(2)}), Presence::kAbsent);
  EXPECT_EQ(table.Get({GroupIndex(0), HashIndex(1)}), Presence::kUnknown);
}

TEST(PresenceTable, ForgetsEverythingAtEachOfManyResets) {
  PresenceTable table(1);
  for (int64_t reset = 0; reset < 300; ++reset) {
    table.Reset(300);
    for (int64_t hash = 0; hash < 300; ++hash) {
      ASSERT_EQ(table.Get({GroupIndex(0), HashIndex(hash)}), Presence::kUnknown)
          << "reset " << reset << " hash " << hash;
    }
    table.Set({GroupIndex(0), HashIndex(reset)}, Presence::kPresent);
  }
}

TEST(PresenceTable, KeepsItsRoomWhenAShorterPromptFollows) {
  PresenceTable table(1);
  table.Reset(100);
  table.Set({GroupIndex(0), HashIndex(99)}, Presence::kPresent);
  table.Reset(1);
  table.Reset(100);
  EXPECT_EQ(table.Get({GroupIndex(0), HashIndex(99)}), Presence::kUnknown);
}

}  // namespace
}  // namespace tenure::kv
