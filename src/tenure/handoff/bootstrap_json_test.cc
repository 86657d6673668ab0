#include "tenure/handoff/bootstrap_json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"

namespace tenure::handoff {
namespace {

using ::testing::HasSubstr;

pd::WorkerRegistration Worker() {
  return {.engine_id = "engine", .dp_rank = 1, .tp_rank = 2, .pp_rank = 3, .address = "tcp://10.0.0.1:5000"};
}

TEST(BootstrapJson, RegistrationHasStocksFieldsAndNoOther) {
  EXPECT_EQ(EncodeRegistration(Worker()),
            R"({"addr":"tcp://10.0.0.1:5000","dp_rank":1,"engine_id":"engine","pp_rank":3,"tp_rank":2})");
}

TEST(BootstrapJson, RegistrationSurvivesWithItsAdditions) {
  pd::WorkerRegistration worker = Worker();
  worker.kv_lease_duration = 0.5;
  worker.incarnation = 7;
  worker.tp_size = 4;
  worker.pp_size = 4;
  const auto decoded = DecodeRegistration(EncodeRegistration(worker));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->engine_id, "engine");
  EXPECT_EQ(decoded->dp_rank, 1);
  EXPECT_EQ(decoded->tp_rank, 2);
  EXPECT_EQ(decoded->pp_rank, 3);
  EXPECT_EQ(decoded->address, "tcp://10.0.0.1:5000");
  EXPECT_EQ(decoded->kv_lease_duration, 0.5);
  EXPECT_EQ(decoded->incarnation, 7);
  EXPECT_EQ(decoded->tp_size, 4);
  EXPECT_EQ(decoded->pp_size, 4);
}

TEST(BootstrapJson, UnknownFieldsAndNullAdditionsAreSkipped) {
  const auto decoded = DecodeRegistration(
      R"({"engine_id":"e","dp_rank":0,"tp_rank":0,"pp_rank":0,"addr":"tcp://a:1","kv_lease_duration":null,"x":[{}]})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_FALSE(decoded->kv_lease_duration.has_value());
}

TEST(BootstrapJson, AnErrorNamesTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(nonsense)", "no JSON object"},
      {R"([1])", "no JSON object"},
      {R"({"dp_rank":0,"tp_rank":0,"pp_rank":0,"addr":"tcp://a:1"})", "engine_id is missing"},
      {R"({"engine_id":7,"dp_rank":0,"tp_rank":0,"pp_rank":0,"addr":"tcp://a:1"})", "engine_id is no text"},
      {R"({"engine_id":"e","tp_rank":0,"pp_rank":0,"addr":"tcp://a:1"})", "dp_rank is missing"},
      {R"({"engine_id":"e","dp_rank":0.5,"tp_rank":0,"pp_rank":0,"addr":"tcp://a:1"})", "dp_rank is no whole number"},
      {R"({"engine_id":"e","dp_rank":0,"tp_rank":true,"pp_rank":0,"addr":"tcp://a:1"})", "tp_rank is no whole number"},
      {R"({"engine_id":"e","dp_rank":0,"tp_rank":0,"pp_rank":18446744073709551615,"addr":"tcp://a:1"})",
       "pp_rank is no"},
      {R"({"engine_id":"e","dp_rank":0,"tp_rank":0,"pp_rank":0})", "addr is missing"},
      {R"({"engine_id":"e","dp_rank":0,"tp_rank":0,"pp_rank":0,"addr":"tcp://a:1","kv_lease_duration":"30"})",
       "kv_lease_duration is no number"}};
  for (const auto& [text, expected] : cases) {
    const auto decoded = DecodeRegistration(text);
    ASSERT_TRUE(absl::IsInvalidArgument(decoded.status())) << text;
    EXPECT_THAT(std::string(Message(decoded.status())), HasSubstr(expected)) << text;
  }
}

TEST(BootstrapJson, LongAndDeepBodiesAreRefused) {
  EXPECT_FALSE(DecodeRegistration(std::string(kRegistrationBytesMax + 1, ' ')).ok());
  EXPECT_FALSE(DecodeRegistration(std::string(kRegistrationBytesMax, '[')).ok());
  EXPECT_FALSE(DecodeEngines(std::string(kEnginesBytesMax + 1, ' ')).ok());
  EXPECT_FALSE(DecodeEngines(std::string(1'000'000, '[')).ok());
}

TEST(BootstrapJson, EnginesAreKeyedByRanksAsText) {
  EXPECT_EQ(EncodeEngines({}), "{}");
  RegisteredEngines engines;
  engines[0].engine_id = "a";
  engines[0].addresses[0][0] = "tcp://a:1";
  engines[0].addresses[10][1] = "tcp://a:2";
  EXPECT_EQ(EncodeEngines(engines),
            R"({"0":{"engine_id":"a","worker_addr":{"0":{"0":"tcp://a:1"},"10":{"1":"tcp://a:2"}}}})");
  engines[0].kv_lease_duration = 30;
  engines[0].incarnation = 5;
  engines[0].tp_size = 2;
  engines[0].pp_size = 2;
  engines[12].engine_id = "b";
  const auto decoded = DecodeEngines(EncodeEngines(engines));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(EncodeEngines(*decoded), EncodeEngines(engines));
  EXPECT_EQ(decoded->at(0).kv_lease_duration, 30.0);
  EXPECT_TRUE(decoded->at(0).IsPartial());
}

TEST(BootstrapJson, AnEngineThatIsNoneIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"x":{"engine_id":"a","worker_addr":{}}})", "a dp rank"},
      {R"({"-1":{"engine_id":"a","worker_addr":{}}})", "a dp rank"},
      {R"({"0":[]})", "no JSON object"},
      {R"({"0":{"worker_addr":{}}})", "engine_id is missing"},
      {R"({"0":{"engine_id":"a"}})", "worker_addr is no map"},
      {R"({"0":{"engine_id":"a","worker_addr":{"0":"tcp://a:1"}}})", "without a map of pp ranks"},
      {R"({"0":{"engine_id":"a","worker_addr":{"0":{"0":1}}}})", "an address that is no text"},
      {R"({"0":{"engine_id":"a","worker_addr":{"0":{"0":"a","00":"b"}}}})", "pp rank 0 twice"},
      {R"({"0":{"engine_id":"a","worker_addr":{"0":{},"00":{}}}})", "tp rank 0 twice"},
      {R"({"0":{"engine_id":"a","worker_addr":{}},"00":{"engine_id":"a","worker_addr":{}}})", "dp rank 0 comes twice"},
      {R"({"0":{"engine_id":"a","worker_addr":{"65536":{}}}})", "a tp rank"},
      {R"({"0":{"engine_id":"a","worker_addr":{},"tp_size":9223372036854775807,"pp_size":3}})", "tp_size is"},
      {R"({"0":{"engine_id":"a","worker_addr":{},"kv_lease_duration":-1}})", "kv_lease_duration is -1"}};
  for (const auto& [text, expected] : cases) {
    const auto decoded = DecodeEngines(text);
    ASSERT_TRUE(absl::IsInvalidArgument(decoded.status())) << text;
    EXPECT_THAT(std::string(Message(decoded.status())), HasSubstr(expected)) << text;
  }
}

TEST(BootstrapJson, DetailIsToldHoweverTheServerSaysIt) {
  EXPECT_EQ(DecodeDetail(EncodeDetail("no \"place\"")), "no \"place\"");
  EXPECT_EQ(DecodeDetail(R"({"detail":[{"loc":["body"]}]})"), R"([{"loc":["body"]}])");
  EXPECT_EQ(DecodeDetail("<html>"), "<html>");
  EXPECT_EQ(DecodeDetail(std::string(10'000, 'x')), std::string(500, 'x') + "...");
  // It ends in logs and in Python, which takes UTF-8 alone.
  EXPECT_EQ(DecodeDetail("\xFF\nInternal"), "??Internal");
}

}  // namespace
}  // namespace tenure::handoff
