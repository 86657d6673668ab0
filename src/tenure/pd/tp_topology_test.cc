#include "tenure/pd/tp_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// By value: a loop over `*PairedTpRanks(...)` would outlive what it loops over.
std::vector<int64_t> TpRanks(int64_t tp_size, int64_t tp_rank, int64_t remote_tp_size) {
  return *PairedTpRanks(tp_size, tp_rank, remote_tp_size);
}

constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8};

TEST(TpTopologyTest, RankMeetsOneRankOfASmallerEngineAndARunOfALargerOne) {
  EXPECT_THAT(*PairedTpRanks(4, 3, 4), ElementsAre(3));
  EXPECT_THAT(*PairedTpRanks(4, 3, 2), ElementsAre(1));
  EXPECT_THAT(*PairedTpRanks(4, 1, 1), ElementsAre(0));
  EXPECT_THAT(*PairedTpRanks(2, 1, 8), ElementsAre(4, 5, 6, 7));
}

TEST(TpTopologyTest, BothSidesComeToTheSamePairs) {
  for (const int64_t size : kSizes) {
    for (const int64_t other : kSizes) {
      if (!CheckTpSizes(size, other).ok()) continue;
      std::map<std::pair<int64_t, int64_t>, int> pairs;
      for (int64_t rank = 0; rank < size; ++rank) {
        for (const int64_t peer : TpRanks(size, rank, other)) pairs[{rank, peer}] += 1;
      }
      for (int64_t rank = 0; rank < other; ++rank) {
        for (const int64_t peer : TpRanks(other, rank, size)) pairs[{peer, rank}] += 10;
      }
      for (const auto& [pair, seen] : pairs) {
        EXPECT_EQ(seen, 11) << size << "->" << other << " " << pair.first << "," << pair.second;
      }
    }
  }
}

TEST(TpTopologyTest, SizesThatDoNotDivideAreRefusedEdge25) {
  const absl::Status status = PairedTpRanks(2, 0, 3).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(Message(status), HasSubstr("2 and 3 do not divide"));
  EXPECT_FALSE(PrefillWorkersOf({.tp_size = 4}, 6, 1).ok());
  EXPECT_FALSE(ConsumersNeeded({.tp_size = 4}, 6, 1).ok());
}

TEST(TpTopologyTest, SizesAndRanksThatCannotBeAreRefused) {
  for (const int64_t size : {int64_t{0}, int64_t{-1}, kParallelSizeMax + 1, INT64_MIN, INT64_MAX}) {
    EXPECT_FALSE(CheckTpSizes(size, 1).ok());
    EXPECT_FALSE(CheckTpSizes(1, size).ok());
    EXPECT_FALSE(CheckWorkerRank({.pp_size = size}).ok());
    EXPECT_FALSE(PrefillWorkersOf({}, 1, size).ok());
    EXPECT_FALSE(ConsumersNeeded({}, 1, size).ok());
  }
  EXPECT_FALSE(CheckWorkerRank({.tp_size = 2, .tp_rank = 2}).ok());
  EXPECT_FALSE(CheckWorkerRank({.tp_size = 2, .tp_rank = -1}).ok());
  EXPECT_FALSE(CheckWorkerRank({.pp_size = 2, .pp_rank = 2}).ok());
  EXPECT_TRUE(CheckWorkerRank({.tp_size = kParallelSizeMax, .tp_rank = kParallelSizeMax - 1}).ok());
}

TEST(TpTopologyTest, EqualPipelinesMeetStageByStageAndOthersEveryStage) {
  const WorkerRank decode = {.tp_size = 1, .pp_size = 2, .pp_rank = 1};
  EXPECT_THAT(*PrefillWorkersOf(decode, 2, 2), ElementsAre(PeerRank{0, 1}, PeerRank{1, 1}));
  EXPECT_THAT(*PrefillWorkersOf(decode, 2, 1), ElementsAre(PeerRank{0, 0}, PeerRank{1, 0}));
  EXPECT_THAT(*PrefillWorkersOf(decode, 1, 3), ElementsAre(PeerRank{0, 0}, PeerRank{0, 1}, PeerRank{0, 2}));
}

TEST(TpTopologyTest, PrefillExpectsEveryWorkerThatPullsFromIt) {
  for (const int64_t p_tp : kSizes) {
    for (const int64_t d_tp : kSizes) {
      if (!CheckTpSizes(p_tp, d_tp).ok()) continue;
      for (const int64_t p_pp : {1, 2, 3}) {
        for (const int64_t d_pp : {1, 2, 3}) {
          std::map<std::pair<int64_t, int64_t>, int64_t> pulls;
          for (int64_t tp = 0; tp < d_tp; ++tp) {
            for (int64_t pp = 0; pp < d_pp; ++pp) {
              const WorkerRank decode = {d_tp, tp, d_pp, pp};
              const std::vector<PeerRank> workers = *PrefillWorkersOf(decode, p_tp, p_pp);
              for (const PeerRank& peer : workers) {
                pulls[{peer.tp_rank, peer.pp_rank}] += 1;
                EXPECT_TRUE(CheckPaired({p_tp, peer.tp_rank, p_pp, peer.pp_rank}, decode).ok());
              }
            }
          }
          for (int64_t tp = 0; tp < p_tp; ++tp) {
            for (int64_t pp = 0; pp < p_pp; ++pp) {
              EXPECT_EQ(*ConsumersNeeded({p_tp, tp, p_pp, pp}, d_tp, d_pp), (pulls[{tp, pp}]))
                  << p_tp << "->" << d_tp << " stages " << p_pp << "->" << d_pp;
            }
          }
        }
      }
    }
  }
}

TEST(TpTopologyTest, WorkersThatDoNotPairAreTold) {
  const absl::Status tensor = CheckPaired({.tp_size = 2, .tp_rank = 0}, {.tp_size = 4, .tp_rank = 2});
  EXPECT_TRUE(absl::IsInvalidArgument(tensor));
  EXPECT_THAT(Message(tensor), HasSubstr("rank 2 of 4 does not pair with P's rank 0 of 2, which serves 0 to 1"));
  const absl::Status pipeline = CheckPaired({.pp_size = 2, .pp_rank = 0}, {.pp_size = 2, .pp_rank = 1});
  EXPECT_THAT(Message(pipeline), HasSubstr("pipeline rank 1"));
  EXPECT_TRUE(CheckPaired({.pp_size = 2, .pp_rank = 0}, {.pp_size = 3, .pp_rank = 2}).ok());
  EXPECT_FALSE(CheckPaired({}, {.tp_size = 1, .tp_rank = 1}).ok());
}

}  // namespace
}  // namespace tenure::pd
