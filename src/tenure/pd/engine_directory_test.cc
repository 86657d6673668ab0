#include "tenure/pd/engine_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenure::pd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RegisteredEngine StockEngine(int64_t tp_size, int64_t pp_size) {
  RegisteredEngine engine;
  engine.engine_id = "e";
  for (int64_t tp = 0; tp < tp_size; ++tp) {
    for (int64_t pp = 0; pp < pp_size; ++pp) engine.addresses[tp][pp] = "tcp://h:1";
  }
  return engine;
}

std::vector<std::string> Learn(EngineDirectory& directory, RegisteredEngine engine) {
  return directory.Learn({{0, std::move(engine)}});
}

TEST(EngineDirectory, StockSizesAreCounted) {
  EngineDirectory directory(4);
  EXPECT_THAT(Learn(directory, StockEngine(2, 3)), IsEmpty());
  ASSERT_NE(directory.Find("e"), nullptr);
  EXPECT_EQ(directory.Find("e")->tp_size, 2);
  EXPECT_EQ(directory.Find("e")->pp_size, 3);
}

TEST(EngineDirectory, EveryHoleMakesAnEngineIncompleteEdge23) {
  for (int64_t tp = 0; tp < 3; ++tp) {
    for (int64_t pp = 0; pp < 3; ++pp) {
      // Without its last ranks a stock engine is a smaller one; sizes tell.
      RegisteredEngine engine = StockEngine(3, 3);
      engine.tp_size = engine.pp_size = 3;
      engine.addresses[tp].erase(pp);
      EngineDirectory directory(4);
      Learn(directory, engine);
      EXPECT_EQ(directory.Find("e"), nullptr) << tp << " " << pp;
    }
  }
  RegisteredEngine stock = StockEngine(3, 2);
  stock.addresses[1].erase(0);
  EngineDirectory directory(4);
  Learn(directory, stock);
  EXPECT_EQ(directory.Find("e"), nullptr);
  Learn(directory, RegisteredEngine{"e", {}, std::nullopt, std::nullopt, std::nullopt, std::nullopt});
  EXPECT_EQ(directory.Find("e"), nullptr);
}

TEST(EngineDirectory, LaterIncarnationReplacesAndAnEarlierOneDoesNotEdge24) {
  EngineDirectory directory(4);
  RegisteredEngine engine = StockEngine(1, 1);
  Learn(directory, engine);
  engine.incarnation = 5;
  EXPECT_THAT(Learn(directory, engine), ElementsAre("e"));
  EXPECT_THAT(Learn(directory, engine), IsEmpty());
  engine.incarnation = 4;
  engine.addresses[0][0] = "tcp://old:1";
  EXPECT_THAT(Learn(directory, engine), IsEmpty());
  EXPECT_EQ(directory.Find("e")->registered.addresses.at(0).at(0), "tcp://h:1");
}

TEST(EngineDirectory, LaterIncarnationThatIsStillPartialEndsTheOldEdge24) {
  EngineDirectory directory(4);
  RegisteredEngine engine = StockEngine(2, 1);
  engine.tp_size = 2;
  engine.pp_size = 1;
  engine.incarnation = 1;
  Learn(directory, engine);
  engine.addresses.erase(1);
  EXPECT_THAT(Learn(directory, engine), IsEmpty());  // The server forgot a worker; it is still there.
  EXPECT_NE(directory.Find("e"), nullptr);
  engine.incarnation = 2;
  EXPECT_THAT(Learn(directory, engine), ElementsAre("e"));
  EXPECT_EQ(directory.Find("e"), nullptr);
}

TEST(EngineDirectory, EvictionSparesANewerEntryEdge24) {
  EngineDirectory directory(4);
  RegisteredEngine engine = StockEngine(1, 1);
  Learn(directory, engine);
  const uint64_t generation = directory.Find("e")->generation;
  engine.incarnation = 1;
  Learn(directory, engine);
  directory.Evict("e", generation);
  ASSERT_NE(directory.Find("e"), nullptr);
  directory.Evict("e", directory.Find("e")->generation);
  EXPECT_EQ(directory.Find("e"), nullptr);
}

}  // namespace
}  // namespace tenure::pd
