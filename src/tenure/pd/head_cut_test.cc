#include "tenure/pd/head_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using testing::HasSubstr;

constexpr int64_t kHeadBytes = 48;
constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12, 16};

KvRegion Region(int64_t kv_bytes, HeadSplit split = HeadSplit::kAllowed) {
  KvRegion region;
  region.layer_name = "model.layers.0.attn";
  region.kv_bytes = kv_bytes;
  region.block_bytes = kv_bytes;
  region.head_split = split;
  return region;
}

bool Divide(int64_t a, int64_t b) { return std::max(a, b) % std::min(a, b) == 0; }
int64_t HeldBytes(int64_t heads, int64_t tp_size) { return std::max<int64_t>(heads / tp_size, 1) * kHeadBytes; }

struct Planned {
  bool sends;
  ByteCut cut;
};

// The byte plan case by case, as the protocol's spec writes it down; `heads` absent for MLA.
Planned PlanOfTheSpec(int64_t p_rank, int64_t p_size, int64_t d_rank, int64_t d_size, int64_t p_len, int64_t d_len,
                      std::optional<int64_t> heads) {
  const auto cut = [](int64_t from, int64_t to, int64_t size) {
    return ByteCut{static_cast<uint64_t>(from), static_cast<uint64_t>(to), static_cast<uint64_t>(size)};
  };
  if (p_size == d_size) return {true, cut(0, 0, p_len)};
  const bool p_replicated = !heads || p_size > *heads;
  if (heads && p_replicated != (d_size > *heads)) {
    const int64_t per_head = p_len / std::max<int64_t>(*heads / p_size, 1);
    const int64_t p_head = p_rank * *heads / p_size;
    const int64_t d_head = d_rank * *heads / d_size;
    return {p_rank % std::max<int64_t>(p_size / *heads, 1) == 0,
            cut(std::max<int64_t>(d_head - p_head, 0) * per_head, std::max<int64_t>(p_head - d_head, 0) * per_head,
                per_head)};
  }
  if (p_size > d_size) {
    const int64_t ratio = p_size / d_size;
    if (p_replicated) return {p_rank % ratio == 0, cut(0, 0, p_len)};
    return {true, cut(0, p_rank % ratio * p_len, p_len)};
  }
  if (p_replicated) return {true, cut(0, 0, p_len)};
  return {true, cut(d_rank % (d_size / p_size) * d_len, 0, d_len)};
}

TEST(HeadCutTest, FollowsTheSpecForEveryPairOfRanks) {
  int64_t compared = 0;
  for (const int64_t heads : {0, 1, 2, 3, 4, 6, 8, 16}) {  // 0: MLA.
    const KvTraits traits = {.total_kv_heads = std::max<int64_t>(heads, 1), .is_mla = heads == 0, .groups = {{}}};
    for (const int64_t p_size : kSizes) {
      for (const int64_t d_size : kSizes) {
        const int64_t shards = std::max<int64_t>(heads, 1);
        if (!Divide(p_size, d_size) || !Divide(p_size, shards) || !Divide(d_size, shards)) continue;
        for (int64_t p_rank = 0; p_rank < p_size; ++p_rank) {
          const std::vector<int64_t> d_ranks = *PairedTpRanks(p_size, p_rank, d_size);
          for (const int64_t d_rank : d_ranks) {
            const int64_t p_len = HeldBytes(shards, p_size);
            const int64_t d_len = HeldBytes(shards, d_size);
            const Planned expected = PlanOfTheSpec(p_rank, p_size, d_rank, d_size, p_len, d_len,
                                                   heads == 0 ? std::nullopt : std::optional(heads));
            const HeadCut cut = *HeadCut::Create({p_size, p_rank}, {d_size, d_rank}, traits);
            EXPECT_EQ(cut.sends(), expected.sends)
                << heads << " heads, P " << p_rank << "/" << p_size << ", D " << d_rank << "/" << d_size;
            EXPECT_EQ(*cut.Cut(Region(p_len), Region(d_len), false), expected.cut)
                << heads << " heads, P " << p_rank << "/" << p_size << ", D " << d_rank << "/" << d_size;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 1'000);
}

TEST(HeadCutTest, LengthsThatAreNotThoseOfTheRanksAreRefused) {
  const KvTraits traits = {.total_kv_heads = 8, .groups = {{}}};
  const HeadCut equal = *HeadCut::Create({.tp_size = 2}, {.tp_size = 2}, traits);
  EXPECT_TRUE(equal.Cut(Region(64), Region(64), false).ok());
  EXPECT_FALSE(equal.Cut(Region(64), Region(128), false).ok());
  const HeadCut larger = *HeadCut::Create({.tp_size = 4}, {.tp_size = 2}, traits);
  EXPECT_TRUE(larger.Cut(Region(64), Region(128), false).ok());
  EXPECT_FALSE(larger.Cut(Region(64), Region(64), false).ok());
  EXPECT_FALSE(larger.Cut(Region(63), Region(126), false).ok());  // Two heads cannot have 63 bytes.
  const HeadCut smaller = *HeadCut::Create({.tp_size = 1}, {.tp_size = 4}, traits);
  EXPECT_TRUE(smaller.Cut(Region(256), Region(64), false).ok());
  const absl::Status status = smaller.Cut(Region(256), Region(128), false).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(Message(status), HasSubstr("256 bytes for 8 heads at P, 128 bytes for 2 heads at D"));
}

TEST(HeadCutTest, MlaBlocksOfDifferentLengthsAreRefusedAtAnySizes) {
  const KvTraits traits = {.is_mla = true, .groups = {{}}};
  for (const int64_t size : {1, 2, 4}) {
    const HeadCut cut = *HeadCut::Create({.tp_size = 2}, {.tp_size = size}, traits);
    EXPECT_TRUE(cut.whole_blocks());
    EXPECT_TRUE(cut.Cut(Region(1152), Region(1152), false).ok());
    EXPECT_FALSE(cut.Cut(Region(576), Region(1152), false).ok());
  }
}

TEST(HeadCutTest, PagesThatCannotBeCutAreRefusedOnlyWhereTheyWouldBe) {
  const KvTraits traits = {.total_kv_heads = 2, .groups = {{}}};
  for (const HeadSplit split : {HeadSplit::kPaddedPage, HeadSplit::kBlockScales}) {
    EXPECT_TRUE(
        HeadCut::Create({.tp_size = 2}, {.tp_size = 2}, traits)->Cut(Region(64, split), Region(64), false).ok());
    EXPECT_TRUE(
        HeadCut::Create({.tp_size = 4}, {.tp_size = 8}, traits)->Cut(Region(64, split), Region(64), false).ok());
    const absl::Status status =
        HeadCut::Create({.tp_size = 2}, {.tp_size = 1}, traits)->Cut(Region(64, split), Region(128), false).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(Message(status), HasSubstr("model.layers.0.attn"));
    EXPECT_FALSE(
        HeadCut::Create({.tp_size = 1}, {.tp_size = 8}, traits)->Cut(Region(128, split), Region(64), false).ok());
  }
}

TEST(HeadCutTest, StatesGoWholeBetweenEqualSizesAndNotOtherwise) {
  const KvTraits traits = {.total_kv_heads = 2, .groups = {{.is_state = true}}};
  EXPECT_TRUE(HeadCut::Create({.tp_size = 4}, {.tp_size = 4}, traits)->Cut(Region(64), Region(64), true).ok());
  const absl::Status status =
      HeadCut::Create({.tp_size = 8}, {.tp_size = 4}, traits)->Cut(Region(64), Region(64), true).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(Message(status), HasSubstr("recurrent states"));
}

TEST(HeadCutTest, HeadsThatDoNotDivideAreRefusedUnlessTheSizesAreEqual) {
  const KvTraits traits = {.total_kv_heads = 6, .groups = {{}}};
  EXPECT_TRUE(HeadCut::Create({.tp_size = 4}, {.tp_size = 4}, traits).ok());
  const absl::Status status = HeadCut::Create({.tp_size = 4}, {.tp_size = 2}, traits).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(Message(status), HasSubstr("6 KV heads on 4"));
}

}  // namespace
}  // namespace tenure::pd
