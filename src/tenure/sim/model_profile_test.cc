#include "tenure/sim/model_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const BuiltinModel& Builtin(std::string_view name) {
  for (const BuiltinModel& model : BuiltinModels()) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << "no model " << name;
  return BuiltinModels()[0];
}

std::string ErrorOf(std::string_view json, int64_t trace_block = 512) {
  const auto profile = ParseModelProfile(json, Tokens(trace_block));
  EXPECT_FALSE(profile.ok()) << json;
  return std::string(Message(profile.status()));
}

constexpr std::string_view kFull512 =
    R"({"name": "full-512", "hash_block_size": 512, "groups": [{"kind": "full", "block_size": 512, "bytes": 512}]})";

// Worked by hand from the published configurations, to hold the constants against a slip.
TEST(BuiltinModels, WeighWhatTheirConfigurationsSay) {
  EXPECT_EQ(Builtin("llama-3.1-70b").full_token_bytes, Bytes(327'680));
  EXPECT_EQ(Builtin("deepseek-v3").full_token_bytes, Bytes(70'272));
  EXPECT_EQ(Builtin("gemma-3-27b").full_token_bytes, Bytes(81'920));
  EXPECT_EQ(Builtin("gemma-3-27b").window_bytes(), Bytes(436'207'616));
  EXPECT_EQ(Builtin("gpt-oss-120b").full_token_bytes, Bytes(36'864));
  EXPECT_EQ(Builtin("gpt-oss-120b").window_bytes(), Bytes(4'718'592));
  EXPECT_EQ(Builtin("qwen3-next-80b").full_token_bytes, Bytes(24'576));
  EXPECT_EQ(Builtin("qwen3-next-80b").state_bytes, Bytes(36 * (1'048'576 + 49'152)));
  EXPECT_EQ(Builtin("kimi-linear-48b").full_token_bytes, Bytes(8'064));
  EXPECT_EQ(Builtin("kimi-linear-48b").state_bytes, Bytes(20 * (2'097'152 + 73'728)));
}

TEST(BuiltinModels, AWindowShorterThanABlockWeighsItsOwnTokens) {
  const auto gpt = MakeBuiltinProfile(Builtin("gpt-oss-120b"), Tokens(512)).value();
  EXPECT_THAT(gpt.chunk_bytes, ElementsAre(Bytes(512 * 36'864), Bytes(128 * 36'864)));
  const auto small_blocks = MakeBuiltinProfile(Builtin("gpt-oss-120b"), Tokens(16)).value();
  EXPECT_THAT(small_blocks.chunk_bytes, ElementsAre(Bytes(16 * 36'864), Bytes(16 * 36'864)));
  const auto gemma = MakeBuiltinProfile(Builtin("gemma-3-27b"), Tokens(512)).value();
  EXPECT_EQ(gemma.chunk_bytes[1], Bytes(512 * 425'984));
}

TEST(BuiltinModels, AllCanBeMadeForEveryBlockOrSayWhyNot) {
  for (const BuiltinModel& model : BuiltinModels()) {
    for (const int64_t block : {1, 16, 512, 4096}) {
      const auto profile = MakeBuiltinProfile(model, Tokens(block));
      ASSERT_TRUE(profile.ok()) << model.name << " " << profile.status();
      EXPECT_EQ(profile->chunk_bytes.size(), profile->config.groups().size());
    }
    EXPECT_THAT(std::string(Message(MakeBuiltinProfile(Builtin("llama-3.1-70b"), Tokens(1 << 24)).status())),
                HasSubstr("--trace-block 16777216"));
  }
}

TEST(ModelFile, GivesGroupsAndBytes) {
  const auto profile = ParseModelProfile(kFull512, Tokens(512)).value();
  EXPECT_EQ(profile.name, "full-512");
  EXPECT_THAT(profile.chunk_bytes, ElementsAre(Bytes(512)));
  EXPECT_EQ(profile.config.hash_block_size(), Tokens(512));
  const auto hybrid = ParseModelProfile(
                          R"({"name": "h", "hash_block_size": 512, "use_eagle": false, "groups": [
                              {"kind": "full", "block_size": 1024, "bytes": 7}, {"kind": "window", "block_size": 512, "window": 600,
                               "eagle": true, "bytes": 3}, {"kind": "state", "block_size": 1536, "bytes": 9}]})",
                          Tokens(256))
                          .value();
  EXPECT_EQ(hybrid.config.scheduler_block_size(), Tokens(3072));
  EXPECT_EQ(hybrid.config.hash_block_size(), Tokens(256));
  EXPECT_TRUE(hybrid.config.any_eagle());
  EXPECT_EQ(hybrid.largest_chunk(), Bytes(9));
}

TEST(ModelFile, BlockSizesMustDivide) {
  EXPECT_EQ(ErrorOf(kFull512, 768),
            "hash_block_size 512: give the trace's block 768 (--trace-block) or a multiple of it");
  EXPECT_EQ(
      ErrorOf(R"({"name": "x", "hash_block_size": 512, "groups": [{"kind": "full", "block_size": 768, "bytes": 1}]})"),
      "groups[0].block_size 768: give a multiple of hash_block_size 512");
  EXPECT_THAT(ErrorOf(R"({"name": "x", "hash_block_size": 512, "scheduler_block_size": 512,
                          "groups": [{"kind": "full", "block_size": 1024, "bytes": 1}]})"),
              HasSubstr("1024"));
}

TEST(ModelFile, NamesABadField) {
  EXPECT_THAT(ErrorOf("x"), StartsWith("not JSON"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("give an object"));
  EXPECT_THAT(ErrorOf("{}"), StartsWith("name is missing"));
  EXPECT_THAT(ErrorOf(R"({"name": 5})"), StartsWith("name 5"));
  EXPECT_THAT(ErrorOf(R"({"name": "x"})"), StartsWith("hash_block_size is missing"));
  EXPECT_THAT(ErrorOf(R"({"name": "x", "hash_block_size": 512, "groups": []})"), StartsWith("groups:"));
  EXPECT_THAT(ErrorOf(R"({"name": "x", "hash_block_size": 512, "fine": true, "groups": [1]})"),
              StartsWith("fine true"));
  EXPECT_THAT(ErrorOf(R"({"name": "x", "typo": 1})"), StartsWith("\"typo\" is not a field"));
  const auto group_error = [](std::string_view group) {
    return ErrorOf(fmt::format(R"({{"name": "x", "hash_block_size": 512, "groups": [{}]}})", group));
  };
  EXPECT_THAT(group_error("7"), StartsWith("groups[0] 7"));
  EXPECT_THAT(group_error("{}"), StartsWith("groups[0].kind"));
  EXPECT_THAT(group_error(R"({"kind": "ful", "block_size": 512, "bytes": 1})"), StartsWith("groups[0].kind"));
  EXPECT_THAT(group_error(R"({"kind": "full", "bytes": 1})"), StartsWith("groups[0].block_size is missing"));
  EXPECT_THAT(group_error(R"({"kind": "full", "block_size": 512})"), StartsWith("groups[0].bytes is missing"));
  EXPECT_THAT(group_error(R"({"kind": "window", "block_size": 512, "bytes": 1})"),
              StartsWith("groups[0].window is missing"));
  EXPECT_THAT(group_error(R"({"kind": "full", "block_size": 512, "window": 5, "bytes": 1})"),
              StartsWith("groups[0].window 5"));
  EXPECT_THAT(group_error(R"({"kind": "full", "block_size": 512, "bytes": 1, "byte": 1})"),
              StartsWith("groups[0].\"byte\""));
  for (const char* bad : {"0", "-1", "1.5", "9223372036854775808", "\"5\"", "null", "1e30", "[]"}) {
    EXPECT_THAT(group_error(fmt::format(R"({{"kind": "full", "block_size": {}, "bytes": 1}})", bad)),
                StartsWith("groups[0].block_size "));
    EXPECT_THAT(group_error(fmt::format(R"({{"kind": "full", "block_size": 512, "bytes": {}}})", bad)),
                HasSubstr("groups[0].bytes"));
  }
}

TEST(ModelFile, NestingAsDeepAsItLikesIsOnlyAnError) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_THAT(ErrorOf(deep), StartsWith("an array"));
  EXPECT_THAT(ErrorOf("{\"name\": " + deep + "}"), StartsWith("name an array"));
}

TEST(LoadModel, SaysWhatItKnowsWhenANameIsNeitherModelNorFile) {
  const std::string error(Message(LoadModel("llama-9", Tokens(512)).status()));
  EXPECT_THAT(error, HasSubstr("--model llama-9"));
  EXPECT_THAT(error, HasSubstr("kimi-linear-48b"));
}

TEST(LoadModel, ReadsAFileAndNamesItInErrors) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "tenure_model_profile_test.json";
  std::ofstream(path) << kFull512;
  EXPECT_EQ(LoadModel(path.string(), Tokens(512)).value().name, "full-512");
  std::ofstream(path) << "{}";
  EXPECT_THAT(std::string(Message(LoadModel(path.string(), Tokens(512)).status())),
              StartsWith(path.string() + ": name is missing"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tenure::sim
