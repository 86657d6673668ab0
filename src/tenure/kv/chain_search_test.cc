#include "tenure/kv/chain_search.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenure::kv {
namespace {

std::vector<int64_t> Sections(const ChainSearch& chain, int64_t probes) {
  std::vector<int64_t> chunks;
  chain.ForEachSection(probes, [&chunks](int64_t chunk) { chunks.push_back(chunk); });
  return chunks;
}

TEST(ChainSearch, AsksForAllOfAShortChain) {
  EXPECT_EQ(Sections(ChainSearch(5), 32), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Sections(ChainSearch(32), 32).size(), 32u);
  EXPECT_TRUE(Sections(ChainSearch(0), 32).empty());
  EXPECT_TRUE(ChainSearch(-3).decided());
}

TEST(ChainSearch, FindsEveryEndInAsManyRoundsAsTheLogarithm) {
  for (const int64_t chunks : {1, 32, 33, 1088, 1089, 35'936}) {
    for (int64_t end = 0; end <= chunks; end += 1 + chunks / 97) {
      ChainSearch chain(chunks);
      int rounds = 0;
      for (; !chain.decided(); ++rounds) {
        for (const int64_t chunk : Sections(chain, 32)) {
          if (chunk < end) {
            chain.LearnPresent(chunk);
          } else {
            chain.LearnAbsent(chunk);
          }
        }
      }
      EXPECT_EQ(chain.low(), end);
      EXPECT_LE(rounds, chunks < 33 ? 1 : chunks < 1089 ? 2 : 3) << chunks << " chunks, end " << end;
    }
  }
}

TEST(ChainSearch, SaysWhenAnAbsenceContradictsTheAssumption) {
  ChainSearch chain(100);
  chain.LearnPresent(80);
  EXPECT_EQ(chain.low(), 81);
  EXPECT_FALSE(chain.LearnAbsent(90));
  EXPECT_TRUE(chain.LearnAbsent(40));
  chain.ResetLow(10);
  EXPECT_EQ(chain.low(), 10);
  EXPECT_EQ(chain.high(), 40);
  chain.LearnPresent(60);
  EXPECT_EQ(chain.low(), 10) << "what lies beyond the end says nothing";
}

}  // namespace
}  // namespace tenure::kv
