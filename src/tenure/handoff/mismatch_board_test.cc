#include "tenure/handoff/mismatch_board.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenure::handoff {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

pd::LeaseMismatch Mismatch(std::optional<double> prefill, std::optional<double> decode,
                           std::vector<std::string> transfer_ids) {
  pd::LeaseMismatch mismatch;
  mismatch.peer = "engine-1";
  mismatch.prefill_seconds = prefill;
  mismatch.decode_seconds = decode;
  mismatch.transfer_ids = std::move(transfer_ids);
  return mismatch;
}

TEST(MismatchBoard, IsEmptyAtFirst) { EXPECT_EQ(MismatchBoard().ToJson(), R"({"mismatches":[],"total":0})"); }

TEST(MismatchBoard, ShowsBothValuesAndTheTextOfEachTransfer) {
  MismatchBoard board;
  board.Add({Mismatch(30, std::nullopt, {"xfer-a", "xfer-b"}), Mismatch(30, 20, {})});
  const Json page = Json::parse(board.ToJson());
  EXPECT_EQ(page["total"], 2);
  ASSERT_EQ(page["mismatches"].size(), 3u);
  const Json& first = page["mismatches"][0];
  EXPECT_EQ(first["peer"], "engine-1");
  EXPECT_EQ(first["transfer_id"], "xfer-a");
  EXPECT_EQ(first["prefill_seconds"], 30.0);
  EXPECT_TRUE(first["decode_seconds"].is_null());
  EXPECT_THAT(first["text"].get<std::string>(), HasSubstr("30 s on the prefill engine and off on the decode engine"));
  EXPECT_EQ(page["mismatches"][1]["transfer_id"], "xfer-b");
  EXPECT_FALSE(page["mismatches"][2].contains("transfer_id"));
}

TEST(MismatchBoard, KeepsTheLastAndCountsAll) {
  MismatchBoard board;
  for (size_t i = 0; i < MismatchBoard::kShownMax + 10; ++i) board.Add({Mismatch(30, 20, {std::to_string(i)})});
  const Json page = Json::parse(board.ToJson());
  EXPECT_EQ(page["total"], MismatchBoard::kShownMax + 10);
  ASSERT_EQ(page["mismatches"].size(), MismatchBoard::kShownMax);
  EXPECT_EQ(page["mismatches"][0]["transfer_id"], "10");
}

TEST(MismatchBoard, APeerThatIsNotUtf8IsShownAllTheSame) {
  MismatchBoard board;
  pd::LeaseMismatch mismatch = Mismatch(30, 20, {});
  mismatch.peer = "\xff\xfe";
  board.Add({mismatch});
  EXPECT_TRUE(Json::accept(board.ToJson()));
}

}  // namespace
}  // namespace tenure::handoff
