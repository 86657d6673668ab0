#include "tenure/pd/bootstrap_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

using ::testing::HasSubstr;

WorkerRegistration Worker(int64_t tp_rank, const std::string& address) {
  WorkerRegistration worker;
  worker.engine_id = "e1";
  worker.tp_rank = tp_rank;
  worker.address = address;
  return worker;
}

WorkerRegistration Sized(WorkerRegistration worker, int64_t tp_size, int64_t pp_size, int64_t incarnation) {
  worker.tp_size = tp_size;
  worker.pp_size = pp_size;
  worker.incarnation = incarnation;
  worker.kv_lease_duration = 30.0;
  return worker;
}

std::string Refusal(BootstrapRegistry& registry, const WorkerRegistration& worker) {
  const absl::Status status = registry.Register(worker);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(Message(status));
}

TEST(BootstrapRegistry, QueryListsWhatStockWorkersRegister) {
  BootstrapRegistry registry;
  EXPECT_TRUE(registry.engines().empty());
  ASSERT_TRUE(registry.Register(Worker(1, "tcp://10.0.0.1:2")).ok());
  ASSERT_TRUE(registry.Register(Worker(0, "tcp://10.0.0.1:1")).ok());
  ASSERT_TRUE(registry.Register(Worker(0, "tcp://10.0.0.1:1")).ok()) << "a retry";
  const RegisteredEngine& engine = registry.engines().at(0);
  EXPECT_EQ(engine.engine_id, "e1");
  EXPECT_EQ(engine.addresses.at(0).at(0), "tcp://10.0.0.1:1");
  EXPECT_EQ(engine.addresses.at(1).at(0), "tcp://10.0.0.1:2");
  EXPECT_EQ(engine.kv_lease_duration, std::nullopt);
  EXPECT_FALSE(engine.IsPartial()) << "nobody said how many there are";
}

TEST(BootstrapRegistry, TakenPlacesAreRefusedWithStocksWords) {
  BootstrapRegistry registry;
  ASSERT_TRUE(registry.Register(Worker(0, "tcp://h:1")).ok());
  EXPECT_THAT(Refusal(registry, Worker(0, "tcp://h:2")),
              HasSubstr("Worker with dp_rank=0, tp_rank=0, pp_rank=0 is already registered at tcp://h:1"));
  WorkerRegistration other = Worker(1, "tcp://h:2");
  other.engine_id = "e2";
  EXPECT_THAT(Refusal(registry, other), HasSubstr("Engine ID mismatch for dp_rank=0: expected e1, got e2"));
  EXPECT_EQ(registry.engines().at(0).addresses.size(), 1u);
}

TEST(BootstrapRegistry, EdgeCase23EngineIsPartialUntilAllItsWorkersAreThere) {
  BootstrapRegistry registry;
  for (int64_t tp_rank = 0; tp_rank < 2; ++tp_rank) {
    for (int64_t pp_rank = 0; pp_rank < 2; ++pp_rank) {
      WorkerRegistration worker = Sized(Worker(tp_rank, "tcp://h:1"), 2, 2, 1);
      worker.pp_rank = pp_rank;
      ASSERT_TRUE(registry.Register(worker).ok());
      EXPECT_EQ(registry.engines().at(0).IsPartial(), tp_rank + pp_rank < 2);
    }
  }
}

TEST(BootstrapRegistry, EdgeCase24LaterStartReplacesTheEarlierWhole) {
  BootstrapRegistry registry;
  ASSERT_TRUE(registry.Register(Sized(Worker(0, "tcp://h:1"), 2, 1, 1)).ok());
  ASSERT_TRUE(registry.Register(Sized(Worker(1, "tcp://h:2"), 2, 1, 1)).ok());
  WorkerRegistration restarted = Sized(Worker(0, "tcp://h:3"), 2, 1, 2);
  restarted.engine_id = "e2";
  ASSERT_TRUE(registry.Register(restarted).ok());
  const RegisteredEngine& engine = registry.engines().at(0);
  EXPECT_EQ(engine.engine_id, "e2");
  EXPECT_EQ(engine.addresses.size(), 1u) << "the earlier rank 1 is gone";
  EXPECT_TRUE(engine.IsPartial());
  WorkerRegistration straggler = Sized(Worker(1, "tcp://h:2"), 2, 1, 1);
  EXPECT_THAT(Refusal(registry, straggler), HasSubstr("Engine ID mismatch"));
  straggler.engine_id = "e2";
  EXPECT_THAT(Refusal(registry, straggler), HasSubstr("incarnation of dp_rank=0 is 1, but 2 has registered"));
}

TEST(BootstrapRegistry, EdgeCase24EngineWithAnIncarnationReplacesOneWithout) {
  BootstrapRegistry registry;
  ASSERT_TRUE(registry.Register(Worker(0, "tcp://h:1")).ok());
  ASSERT_TRUE(registry.Register(Sized(Worker(0, "tcp://h:2"), 1, 1, 1)).ok());
  EXPECT_EQ(registry.engines().at(0).addresses.at(0).at(0), "tcp://h:2");
  EXPECT_THAT(Refusal(registry, Worker(0, "tcp://h:3")), HasSubstr("differ in kv_lease_duration"));
}

TEST(BootstrapRegistry, WorkersOfOneEngineMustHaveOneLease) {
  BootstrapRegistry registry;
  ASSERT_TRUE(registry.Register(Sized(Worker(0, "tcp://h:1"), 2, 1, 1)).ok());
  WorkerRegistration other = Sized(Worker(1, "tcp://h:2"), 2, 1, 1);
  other.kv_lease_duration = 20.0;
  EXPECT_THAT(Refusal(registry, other), HasSubstr("differ in kv_lease_duration, tp_size or pp_size"));
}

TEST(BootstrapRegistry, FieldsOutOfRangeAreRefused) {
  BootstrapRegistry registry;
  EXPECT_THAT(Refusal(registry, Worker(-1, "tcp://h:1")), HasSubstr("tp_rank is -1; use 0 to 65535"));
  EXPECT_THAT(Refusal(registry, Sized(Worker(2, "tcp://h:1"), 2, 1, 1)), HasSubstr("tp_rank is 2; use 0 to 1"));
  EXPECT_THAT(Refusal(registry, Sized(Worker(0, "tcp://h:1"), 0, 1, 1)), HasSubstr("tp_rank is one of 0"));
  EXPECT_THAT(Refusal(registry, Worker(0, "http://h:1")), HasSubstr("is not tcp://IP:PORT"));
  EXPECT_THAT(Refusal(registry, Worker(0, "tcp://h:65537")), HasSubstr("with a port from 1 to 65535"));
  WorkerRegistration worker = Worker(0, "tcp://h:1");
  worker.kv_lease_duration = -1.0;
  EXPECT_THAT(Refusal(registry, worker), HasSubstr("kv_lease_duration is -1"));
  worker = Worker(0, "tcp://h:1");
  worker.engine_id = "";
  EXPECT_THAT(Refusal(registry, worker), HasSubstr("engine_id is empty"));
  EXPECT_TRUE(registry.engines().empty());
}

}  // namespace
}  // namespace tenure::pd
