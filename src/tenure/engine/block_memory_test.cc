#include "tenure/engine/block_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

using kv::GroupIndex;
using ::testing::HasSubstr;

class BlockMemoryTest : public ::testing::Test {
 protected:
  // Four blocks of 256 bytes in each region; group 0 has two shards of 96 bytes (store_connector spec §14.9, LBHNC),
  // group 1 both regions' whole blocks.
  BlockMemory::Options Options() {
    BlockMemory::Options options;
    options.num_blocks = 4;
    options.regions = {{first_.data(), 1024}, {second_.data(), 1024}};
    options.groups = {{{{first_.data(), 256, 96}}, {{first_.data() + 96, 256, 96}}},
                      {{{first_.data(), 256, 256}, {second_.data(), 256, 256}}}};
    return options;
  }
  std::string Error(const BlockMemory::Options& options) {
    return std::string(Message(BlockMemory::Create(options).status()));
  }
  std::vector<std::byte> first_ = std::vector<std::byte>(1024);
  std::vector<std::byte> second_ = std::vector<std::byte>(1024);
};

TEST_F(BlockMemoryTest, AnObjectIsItsPiecesOfTheBlockOneAfterTheOther) {
  const BlockMemory memory = BlockMemory::Create(Options()).value();
  EXPECT_EQ(memory.groups(), 2u);
  EXPECT_EQ(memory.shards(GroupIndex(0)), 2);
  EXPECT_EQ(memory.object_bytes(GroupIndex(0), 1), Bytes(96));
  EXPECT_EQ(memory.object_bytes(GroupIndex(1), 0), Bytes(512));
  EXPECT_EQ(memory.object_bytes_max(), Bytes(512));
  std::vector<store::Segment> segments;
  memory.AppendSegments(GroupIndex(0), 1, 2, segments);
  memory.AppendSegments(GroupIndex(1), 0, 3, segments);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0].data, first_.data() + 608);
  EXPECT_EQ(segments[0].size, 96u);
  EXPECT_EQ(segments[1].data, first_.data() + 768);
  EXPECT_EQ(segments[2].data, second_.data() + 768);
}

TEST_F(BlockMemoryTest, OnlyTheEnginesOwnBlocksAreUsable) {
  const BlockMemory memory = BlockMemory::Create(Options()).value();
  for (const BlockId block : {1, 2, 3}) EXPECT_TRUE(memory.IsUsable(block));
  for (const BlockId block : {INT32_MIN, -1, 0, 4, INT32_MAX}) EXPECT_FALSE(memory.IsUsable(block));
}

TEST_F(BlockMemoryTest, APieceThatLeavesItsRegionIsNamed) {
  BlockMemory::Options options = Options();
  options.groups[1][0][1].base += 1;
  EXPECT_THAT(Error(options), HasSubstr("pieces[1][0][1]"));
  options = Options();
  options.groups[0][1][0].base = nullptr;
  EXPECT_THAT(Error(options), HasSubstr("pieces[0][1][0]"));
  options = Options();
  options.num_blocks = 5;
  EXPECT_THAT(Error(options), HasSubstr("which no registered region holds"));
  // Two regions side by side are no region.
  options = Options();
  options.regions = {{first_.data(), 512}, {first_.data() + 512, 512}, {second_.data(), 1024}};
  EXPECT_THAT(Error(options), HasSubstr("pieces[0][0][0]"));
}

TEST_F(BlockMemoryTest, NumbersOutOfRangeAreNamed) {
  BlockMemory::Options options = Options();
  options.num_blocks = 1;
  EXPECT_THAT(Error(options), HasSubstr("num_blocks is 1"));
  options = Options();
  options.groups[0][0][0].size = 0;
  EXPECT_THAT(Error(options), HasSubstr("0 bytes a block"));
  options = Options();
  options.groups[0][0][0].block_stride = 95;
  EXPECT_THAT(Error(options), HasSubstr("overlap"));
  options = Options();
  options.groups[0][0][0].block_stride = INT64_MAX / 2;
  EXPECT_THAT(Error(options), HasSubstr("2^63"));
  options = Options();
  options.groups[0][0].clear();
  EXPECT_THAT(Error(options), HasSubstr("pieces[0][0] has 0 pieces"));
  options = Options();
  options.groups[1].clear();
  EXPECT_THAT(Error(options), HasSubstr("pieces[1] is empty"));
  options = Options();
  options.regions[1].size = 0;
  EXPECT_THAT(Error(options), HasSubstr("regions[1]"));
  options = Options();
  options.regions[0].size = INT64_MAX;
  options.regions[0].base = reinterpret_cast<std::byte*>(UINTPTR_MAX - 10);
  EXPECT_THAT(Error(options), HasSubstr("past the end of memory"));
}

}  // namespace
}  // namespace tenure::engine
