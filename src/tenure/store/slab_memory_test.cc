#include "tenure/store/slab_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenure::store {
namespace {

std::unique_ptr<SlabMemory> MakeSlabs(int64_t slabs, int64_t slab_bytes, int64_t sizes_max = 4) {
  auto memory = SlabMemory::Create(
      {.slabs = slabs, .slab_bytes = Bytes(slab_bytes), .object_sizes_max = sizes_max, .mapped = false});
  return std::move(*memory);
}

std::vector<Slot> Fill(SlabMemory& memory, Bytes size) {
  std::vector<Slot> slots;
  while (const auto slot = memory.Allocate(size, static_cast<EntryIndex>(slots.size()))) slots.push_back(*slot);
  return slots;
}

TEST(SlabMemory, CutsEachSlabForOneExactSize) {
  auto memory = MakeSlabs(2, 1000);
  EXPECT_EQ(Fill(*memory, Bytes(300)).size(), 6u);
  EXPECT_EQ(memory->used(), Bytes(1800));
  EXPECT_FALSE(memory->Allocate(Bytes(299), 0).has_value());
}

TEST(SlabMemory, SlotsDoNotOverlap) {
  auto memory = MakeSlabs(3, 1000);
  std::vector<int64_t> offsets;
  for (const Slot& slot : Fill(*memory, Bytes(250))) offsets.push_back(memory->OffsetOf(slot, Bytes(250)));
  std::sort(offsets.begin(), offsets.end());
  ASSERT_EQ(offsets.size(), 12u);
  for (size_t at = 1; at < offsets.size(); ++at) EXPECT_GE(offsets[at] - offsets[at - 1], 250);
  EXPECT_LE(offsets.back() + 250, 3000);
}

TEST(SlabMemory, AnEmptiedSlabServesAnySize) {
  auto memory = MakeSlabs(1, 1000);
  for (const Slot& slot : Fill(*memory, Bytes(500))) memory->Free(slot);
  EXPECT_EQ(memory->used(), Bytes(0));
  EXPECT_EQ(Fill(*memory, Bytes(100)).size(), 10u);
}

TEST(SlabMemory, AFreedSlotIsGivenOutAgain) {
  auto memory = MakeSlabs(2, 1000);
  const std::vector<Slot> slots = Fill(*memory, Bytes(100));
  memory->Free(slots[3]);
  memory->Free(slots[17]);
  EXPECT_EQ(Fill(*memory, Bytes(100)).size(), 2u);
}

TEST(SlabMemory, SizesWithSlabsAreBounded) {
  auto memory = MakeSlabs(8, 1000, 2);
  const auto first = memory->Allocate(Bytes(10), 0);
  ASSERT_TRUE(memory->Allocate(Bytes(20), 1).has_value());
  EXPECT_FALSE(memory->Allocate(Bytes(30), 2).has_value());
  memory->Free(*first);
  EXPECT_TRUE(memory->Allocate(Bytes(30), 2).has_value());
}

TEST(SlabMemory, ADrainedSlabIsRecutForTheAskingSize) {
  auto memory = MakeSlabs(1, 1000);
  const std::vector<Slot> slots = Fill(*memory, Bytes(500));
  ASSERT_TRUE(memory->BeginDrain(0, Bytes(100)));
  EXPECT_FALSE(memory->BeginDrain(0, Bytes(100))) << "it is being drained";
  memory->Free(slots[0]);
  EXPECT_FALSE(memory->Allocate(Bytes(500), 9).has_value()) << "nothing goes into a draining slab";
  EXPECT_FALSE(memory->Reassign(slots[1], 9));
  memory->Free(slots[1]);
  const auto slot = memory->EndDrain(0, Bytes(100), 7);
  ASSERT_TRUE(slot.has_value());
  EXPECT_EQ(memory->ContentOf(0).owners, std::vector<EntryIndex>{7});
  EXPECT_EQ(memory->ContentOf(0).slots, 10);
  EXPECT_EQ(memory->recut_total(), 1);
}

TEST(SlabMemory, AnUnfinishedDrainLeavesTheSlabToItsClass) {
  auto memory = MakeSlabs(1, 1000);
  const std::vector<Slot> slots = Fill(*memory, Bytes(500));
  ASSERT_TRUE(memory->BeginDrain(0, Bytes(100)));
  memory->Free(slots[0]);
  EXPECT_FALSE(memory->EndDrain(0, Bytes(100), 7).has_value());
  EXPECT_TRUE(memory->Allocate(Bytes(500), 8).has_value());
  EXPECT_FALSE(memory->Allocate(Bytes(500), 9).has_value());
}

TEST(SlabMemory, TinyObjectsAreBoundedPerSlab) {
  auto memory = MakeSlabs(1, int64_t{64} << 20);
  EXPECT_EQ(memory->SlotsPerSlab(Bytes(1)), SlabMemory::kSlotsPerSlabMax);
}

}  // namespace
}  // namespace tenure::store
