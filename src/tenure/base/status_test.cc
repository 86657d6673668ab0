#include "tenure/base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace tenure {
namespace {

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("value is {}; give an even number", value);
  return value / 2;
}

absl::Status RequireQuarter(int value, int& evaluations) {
  TENURE_ASSIGN_OR_RETURN(const int half, (++evaluations, Half(value)));
  TENURE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter > 0 ? absl::OkStatus() : FailedPrecondition("quarter is {}", quarter);
}

absl::Status Forward(const absl::Status& status, bool& went_on) {
  TENURE_RETURN_IF_ERROR(status);
  went_on = true;
  return absl::OkStatus();
}

TEST(Status, MessagesAreFormattedAndKeepTheirCode) {
  const absl::Status status = InvalidArgument("capacity is {} bytes; give at least {}", 0, 1024);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "capacity is 0 bytes; give at least 1024");
  EXPECT_EQ(BadData("line {}", 3).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ResourceExhausted("x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FailedPrecondition("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Unavailable("x").code(), absl::StatusCode::kUnavailable);
}

TEST(Status, AssignOrReturnEvaluatesOnceAndStopsAtTheFirstError) {
  int evaluations = 0;
  EXPECT_TRUE(RequireQuarter(8, evaluations).ok());
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(Message(RequireQuarter(6, evaluations)), "value is 3; give an even number");
  EXPECT_EQ(RequireQuarter(0, evaluations).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Status, AssignOrReturnMovesTheValueOut) {
  const auto take = [](absl::StatusOr<std::unique_ptr<int>> source) -> absl::StatusOr<std::unique_ptr<int>> {
    TENURE_ASSIGN_OR_RETURN(std::unique_ptr<int> value, std::move(source));
    return value;
  };
  EXPECT_EQ(**take(std::make_unique<int>(5)), 5);
}

TEST(Status, ReturnIfErrorGoesOnOnlyWhenOk) {
  bool went_on = false;
  EXPECT_FALSE(Forward(Unavailable("gone"), went_on).ok());
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(Forward(absl::OkStatus(), went_on).ok());
  EXPECT_TRUE(went_on);
}

}  // namespace
}  // namespace tenure
