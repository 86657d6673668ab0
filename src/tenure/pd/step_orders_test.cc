#include "tenure/pd/step_orders.h"

#include <gtest/gtest.h>

#include <limits>

#include "tenure/base/status.h"
#include "tenure/pd/msgpack_reader.h"

namespace tenure::pd {
namespace {

StepOrders AllKinds() {
  StepOrders orders;
  orders.aborted = {{"a", "xfer-a"}};
  orders.announced = {{"b", "xfer-b"}, {"c", "xfer-c"}};
  orders.finished = {{"d", "xfer-d", {{1, 2, 300}, {}, {70'000}}}, {"e", "xfer-e", {}}};
  orders.pulls = {{"f", "xfer-f", "engine", "http://127.0.0.1:8998", {{9}, {5, 6}}, absl::Milliseconds(1500)},
                  {"g", "xfer-g", "engine", "http://127.0.0.1:8998", {}, absl::ZeroDuration()}};
  return orders;
}

TEST(StepOrdersTest, ComeBackAsTheyWere) {
  const auto bytes = EncodeStepOrders(AllKinds());
  ASSERT_TRUE(bytes.ok());
  const auto orders = DecodeStepOrders(*bytes);
  ASSERT_TRUE(orders.ok()) << orders.status();
  EXPECT_EQ(*orders, AllKinds());
}

TEST(StepOrdersTest, NoOrdersAreNoBytes) {
  const auto bytes = EncodeStepOrders({});
  ASSERT_TRUE(bytes.ok());
  EXPECT_TRUE(bytes->empty());
  EXPECT_TRUE(DecodeStepOrders("")->empty());
}

TEST(StepOrdersTest, EveryCutIsRefused) {
  const std::string bytes = EncodeStepOrders(AllKinds()).value();
  for (size_t length = 1; length < bytes.size(); ++length) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeStepOrders(bytes.substr(0, length)).status())) << length;
  }
}

TEST(StepOrdersTest, WhatADecoderWouldRefuseIsNotEncoded) {
  StepOrders orders;
  orders.announced = {{"r", std::string(MsgpackReader::kTextBytesMax + 1, 'x')}};
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeStepOrders(orders).status()));
  orders.announced = {{"r", "\xff"}};
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeStepOrders(orders).status()));
}

TEST(StepOrdersTest, APullWithNegativeTimeIsRefused) {
  StepOrders orders;
  orders.pulls = {{"r", "t", "e", "b", {}, absl::Nanoseconds(-1)}};
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeStepOrders(EncodeStepOrders(orders).value()).status()));
}

TEST(StepOrdersTest, AnEndlessTimeStaysWithinTheFormat) {
  StepOrders orders;
  orders.pulls = {{"r", "t", "e", "b", {}, absl::InfiniteDuration()}};
  const auto decoded = DecodeStepOrders(EncodeStepOrders(orders).value());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->pulls[0].remaining, absl::Nanoseconds(std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace tenure::pd
