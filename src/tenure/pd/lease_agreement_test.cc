#include "tenure/pd/lease_agreement.h"

#include <gtest/gtest.h>

#include "tenure/base/status.h"

namespace tenure::pd {
namespace {

TEST(LeaseAgreement, EqualValuesAndOffOnBothSidesAgree) {
  EXPECT_TRUE(CheckLeaseAgreement(std::nullopt, std::nullopt).ok());
  EXPECT_TRUE(CheckLeaseAgreement(30.0, 30.0).ok());
  EXPECT_TRUE(CheckLeaseAgreement(0.5, 0.5).ok());
}

TEST(LeaseAgreement, EveryOtherPairFailsWithBothValuesInOneText) {
  const absl::Status differs = CheckLeaseAgreement(30.0, 7.5);
  EXPECT_TRUE(absl::IsFailedPrecondition(differs));
  EXPECT_EQ(
      Message(differs),
      "kv_lease_duration is 30 s on the prefill engine and 7.5 s on the decode engine; set the same value on both "
      "(an engine or an external bootstrap server that does not know leases counts as off)");
  EXPECT_NE(Message(CheckLeaseAgreement(std::nullopt, 30.0)).find("is off on the prefill engine and 30 s on"),
            std::string_view::npos);
  EXPECT_NE(Message(CheckLeaseAgreement(30.0, std::nullopt)).find("is 30 s on the prefill engine and off on"),
            std::string_view::npos);
}

}  // namespace
}  // namespace tenure::pd
