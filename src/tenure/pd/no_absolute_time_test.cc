// Edge case 41 of pd_protocol spec §9: a clock is one process's own, so no message depends on what it shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenure/base/check.h"
#include "tenure/pd/consumer.h"
#include "tenure/pd/producer.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/renewer.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

using ::testing::SizeIs;

constexpr double kLease = 30;

RegisteredEngine Engine() {
  RegisteredEngine engine;
  engine.engine_id = "e";
  engine.kv_lease_duration = kLease;
  engine.tp_size = engine.pp_size = 1;
  engine.addresses[0][0] = "tcp://e:1";
  return engine;
}

std::string PullAt(MonotonicTime now) {
  ConsumerOptions options;
  options.worker = TinyPull(TinyLayout({}, 1 << 20, 16), "d", kLease);
  Consumer consumer = Consumer::Create(options).value();
  consumer.StartPulls({{"d1", "x", "e", "http://b", {{1, 2}}, absl::Seconds(540)}}, now);
  const auto sends = consumer.OnQueryAnswer("http://b", std::map<int64_t, RegisteredEngine>{{0, Engine()}}, now).sends;
  EXPECT_THAT(sends, SizeIs(1));
  return sends.at(0).bytes;
}

std::string RenewalAt(MonotonicTime now) {
  Renewer renewer = Renewer::Create({absl::Seconds(kLease)}).value();
  renewer.Locate("e", "http://b");
  renewer.Renew({{"e", {"x"}}}, now);
  const auto sends = renewer.OnQueryAnswer("http://b", std::map<int64_t, RegisteredEngine>{{0, Engine()}}, now).sends;
  EXPECT_THAT(sends, SizeIs(1));
  return sends.at(0).bytes;
}

// What P answers to a renewal, and to a pull of a transfer that has expired.
std::string AnswersAt(MonotonicTime now) {
  ProducerOptions options;
  options.handoff.lease = absl::Seconds(kLease);
  Producer producer = Producer::Create(options, TinyLayout({}, 1 << 20, 16), TinyTraits()).value();
  StepOrders orders;
  orders.announced.push_back({"p", "x"});
  orders.finished.push_back({"p", "x", {{1, 2}}});
  producer.RecordStep(orders, now);
  std::string answers = producer.OnMessage("r", *EncodeRenewal({{"x", "y"}, kLease}), now).replies.at(0).bytes;
  now = now + absl::Seconds(kLease);
  producer.Scan(now);
  return answers + producer.OnMessage("d", PullAt(now), now).replies.at(0).bytes;
}

TEST(NoAbsoluteTime, MessagesAreTheSameWhateverTheClockShowsEdge41) {
  const MonotonicTime early = MonotonicTime::FromNanoseconds(1);
  const MonotonicTime late = early + absl::Hours(24 * 365 * 10);
  EXPECT_EQ(PullAt(early), PullAt(late));
  EXPECT_EQ(RenewalAt(early), RenewalAt(late));
  EXPECT_EQ(AnswersAt(early), AnswersAt(late));
}

}  // namespace
}  // namespace tenure::pd
