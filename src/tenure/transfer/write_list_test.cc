// Which pieces a post may have, and what becomes one write.
#include "tenure/transfer/write_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {
namespace {

using ::testing::HasSubstr;

MemoryMap Map(const std::vector<MemoryRange>& ranges) { return MemoryMap::Create("the test", ranges).value(); }

TEST(MemoryMap, FindsTheRangeThatHoldsAllBytes) {
  const MemoryMap map = Map({{2000, 100}, {1000, 1000}, {UINT64_MAX - 9, 10}});
  EXPECT_EQ(map.Find(1000, 1000), 1u);
  EXPECT_EQ(map.Find(1999, 1), 1u);
  EXPECT_EQ(map.Find(2000, 100), 0u);
  EXPECT_EQ(map.Find(UINT64_MAX - 9, 10), 2u);
  EXPECT_EQ(map.Find(UINT64_MAX, 1), 2u);
  for (const auto& [address, size] : std::vector<std::pair<uint64_t, uint64_t>>{
           {999, 1}, {999, 2}, {1999, 2}, {2100, 1}, {2000, 101}, {0, UINT64_MAX}, {UINT64_MAX, 2}, {5, UINT64_MAX}}) {
    EXPECT_EQ(map.Find(address, size), MemoryMap::kNone) << address << " " << size;
  }
  EXPECT_EQ(MemoryMap().Find(0, 1), MemoryMap::kNone);
}

TEST(MemoryMap, RefusesRangesThatAreNone) {
  const auto refusal = [](const std::vector<MemoryRange>& ranges) {
    return std::string(Message(MemoryMap::Create("the test", ranges).status()));
  };
  EXPECT_THAT(refusal({{1000, 0}}), HasSubstr("0 bytes at 0x3e8"));
  EXPECT_THAT(refusal({{UINT64_MAX, 2}}), HasSubstr("do not wrap"));
  EXPECT_THAT(refusal({{1000, 10}, {5, 1}, {1009, 1}}), HasSubstr("0x3e8 and 0x3f1 overlap"));
  EXPECT_THAT(refusal({{1000, 10}, {1000, 10}}), HasSubstr("register each storage once"));
  EXPECT_EQ(refusal({{1000, 10}, {1010, 10}}), "");
  std::vector<MemoryRange> many;
  for (uint64_t i = 0; i <= Transport::kRangesMax; ++i) many.push_back({i, 1});
  EXPECT_THAT(refusal(many), HasSubstr("at most 4096"));
}

TEST(RangeRegistry, RefusedRangesChangeNothing) {
  RangeRegistry registry;
  ASSERT_TRUE(registry.Add({{1000, 10}}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(registry.Add({{2000, 10}, {1005, 1}})));
  ASSERT_EQ(registry.Keys().size(), 1u);
  EXPECT_EQ(registry.Keys()[0], (pd::MemoryKey{1000, 10, ""}));
  EXPECT_EQ(registry.Get()->map.Find(2000, 1), MemoryMap::kNone);
}

TEST(WriteList, NeighboursOnBothSidesBecomeOneWrite) {
  const MemoryMap own = Map({{1000, 1000}});
  const MemoryMap peer = Map({{5000, 100}, {5100, 100}});
  const auto writes = PlaceWrites(own, peer,
                                  {{1000, 5000, 10},
                                   {1010, 5010, 20},
                                   {1030, 5030, 0},
                                   {1030, 5030, 70},
                                   {1100, 5100, 10},    // Touches, in another range.
                                   {1110, 5120, 10},    // A gap at the peer.
                                   {1130, 5130, 10}});  // A gap here.
  ASSERT_TRUE(writes.ok()) << writes.status();
  ASSERT_EQ(writes->size(), 4u);
  EXPECT_EQ((*writes)[0].from, 1000u);
  EXPECT_EQ((*writes)[0].to, 5000u);
  EXPECT_EQ((*writes)[0].size, 100u);
  EXPECT_EQ((*writes)[0].to_range, 0u);
  EXPECT_EQ((*writes)[1].size, 10u);
  EXPECT_EQ((*writes)[1].to_range, 1u);
  EXPECT_EQ((*writes)[2].to, 5120u);
  EXPECT_EQ((*writes)[3].from, 1130u);
}

TEST(WriteList, PieceOutsideOfRegisteredMemoryIsRefusedWithItsAddress) {
  const MemoryMap own = Map({{1000, 1000}});
  const MemoryMap peer = Map({{5000, 100}});
  const auto refusal = [&](const pd::WritePiece& piece) {
    return std::string(Message(PlaceWrites(own, peer, {{1000, 5000, 1}, piece}).status()));
  };
  EXPECT_THAT(refusal({900, 5000, 1}), HasSubstr("1 bytes from 0x384 are outside of this process's"));
  EXPECT_THAT(refusal({1000, 5099, 2}), HasSubstr("2 bytes to 0x13eb are outside of the memory that the peer"));
  EXPECT_THAT(refusal({1000, 5000, UINT64_MAX}), HasSubstr("outside"));
}

}  // namespace
}  // namespace tenure::transfer
