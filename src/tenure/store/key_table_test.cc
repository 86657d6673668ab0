#include "tenure/store/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::store {
namespace {

// Inserts and removes at random against a plain list; few distinct tags near each other make long runs that wrap
// around.
void CompareWithAList(KeyTable& table, size_t entries_max, uint64_t tags, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  std::vector<std::pair<uint32_t, EntryIndex>> present;
  EntryIndex next_entry = 0;
  const auto found = [&](uint32_t tag, EntryIndex entry) {
    return table.Find(tag, [entry](EntryIndex candidate) { return candidate == entry; }) == entry;
  };
  for (int step = 0; step < 20'000; ++step) {
    if (present.size() < entries_max && random.Chance(0.55)) {
      const uint32_t tag = UINT32_MAX - static_cast<uint32_t>(random.Below(tags));
      ASSERT_FALSE(found(tag, next_entry));
      table.Insert(tag, next_entry);
      present.emplace_back(tag, next_entry++);
    } else if (!present.empty()) {
      const size_t at = random.Below(present.size());
      table.Remove(present[at].first, present[at].second);
      EXPECT_FALSE(found(present[at].first, present[at].second));
      std::swap(present[at], present.back());
      present.pop_back();
    }
    if (step % 100 == 0) {
      for (const auto& [tag, entry] : present) ASSERT_TRUE(found(tag, entry));
    }
    ASSERT_EQ(table.size(), static_cast<int64_t>(present.size()));
  }
}

TEST(KeyTable, FindsWhatWasInsertedAndNotRemoved) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (const uint64_t tags : {uint64_t{4}, uint64_t{1} << 30, uint64_t{UINT32_MAX}}) {
      KeyTable table;
      std::vector<KeyTable::Slot> slots(KeyTable::SlotsFor(200));
      table.InitFixed(slots);
      CompareWithAList(table, 200, tags, seed);
    }
  }
}

TEST(KeyTable, GrowsWithoutLosingEntries) {
  KeyTable table;
  ASSERT_TRUE(table.InitGrowing().ok());
  const size_t start = table.bytes();
  CompareWithAList(table, 5'000, UINT32_MAX, 1);
  EXPECT_GT(table.bytes(), start);
}

}  // namespace
}  // namespace tenure::store
