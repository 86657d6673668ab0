#include "tenure/engine/token_account.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenure::engine {
namespace {

// Local, external, recomputed, computed of a prefill of 100 tokens.
std::vector<int64_t> Shares(int64_t present, const LoadOutcome& load) {
  TokenTotals totals;
  AddPrefill(Tokens(100), Tokens(present), load, totals);
  EXPECT_EQ(totals.prompt, 100);
  return {totals.local, totals.external, totals.recomputed, totals.computed};
}
using Expected = std::vector<int64_t>;

TEST(TokenAccountTest, WithoutALoadAllThatIsPresentIsLocal) { EXPECT_EQ(Shares(32, {}), (Expected{32, 0, 0, 68})); }

TEST(TokenAccountTest, ALoadBringsWhatIsPastTheLocalTokens) {
  EXPECT_EQ(Shares(64, {Tokens(16), Tokens(64), false}), (Expected{16, 48, 0, 36}));
}

TEST(TokenAccountTest, WhatAFailedLoadDidNotBringIsRecomputed) {
  EXPECT_EQ(Shares(0, {Tokens(16), Tokens(64), true}), (Expected{0, 0, 64, 36}));
  EXPECT_EQ(Shares(32, {Tokens(16), Tokens(64), true}), (Expected{16, 16, 32, 36}));
  // Asked again, the engine found more in its own cache than the load was to bring.
  EXPECT_EQ(Shares(80, {Tokens(INT64_MAX), Tokens(64), true}), (Expected{80, 0, 0, 20}));
}

}  // namespace
}  // namespace tenure::engine
