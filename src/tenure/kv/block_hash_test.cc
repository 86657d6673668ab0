#include "tenure/kv/block_hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

constexpr std::string_view kDigits = "00112233445566778899aabbccddeeff";

TEST(BlockHash, ReadsDigitsOfEitherCase) {
  const BlockHash lower = *BlockHash::FromHex("hash", kDigits);
  const BlockHash upper = *BlockHash::FromHex("hash", "00112233445566778899AABBCCDDEEFF");
  EXPECT_EQ(lower, upper);
  EXPECT_EQ(upper.ToHex(), kDigits);
  EXPECT_EQ(lower.size(), 16u);
  EXPECT_EQ(*BlockHash::FromBytes("hash", lower.bytes()), lower);
}

TEST(BlockHash, SizesTellHashesApart) {
  const BlockHash short_hash = *BlockHash::FromHex("hash", std::string(32, '0'));
  const BlockHash long_hash = *BlockHash::FromHex("hash", std::string(64, '0'));
  EXPECT_NE(short_hash, long_hash);
  EXPECT_NE(short_hash, BlockHash());
  EXPECT_LT(short_hash, long_hash);
}

TEST(BlockHash, RefusalsNameTheArgument) {
  EXPECT_EQ(Message(BlockHash::FromHex("hashes[2]", "00").status()),
            "hashes[2] has 2 characters; a block hash has 32 or 64 hexadecimal digits");
  EXPECT_NE(Message(BlockHash::FromHex("h", "0011223344556677 899aabbccddeeff").status()).find("character 16"),
            std::string_view::npos);
  EXPECT_NE(Message(BlockHash::FromHex("h", "-0112233445566778899aabbccddeeff").status()).find("character 0"),
            std::string_view::npos);
  const std::array<uint8_t, 20> bytes{};
  EXPECT_NE(Message(BlockHash::FromBytes("hash", bytes).status()).find("20 bytes"), std::string_view::npos);
}

TEST(BlockHash, HexOfEveryByteInEveryPlace) {
  for (const size_t size : {16, 32}) {
    for (size_t start = 0; start < 256; ++start) {
      std::vector<uint8_t> bytes;
      std::string hex;
      for (size_t i = 0; i < size; ++i) {
        bytes.push_back(static_cast<uint8_t>(start + i));
        hex += fmt::format("{:02x}", bytes.back());
      }
      EXPECT_EQ(BlockHash::FromTrusted(bytes).ToHex(), hex);
    }
  }
}

}  // namespace
}  // namespace tenure::kv
