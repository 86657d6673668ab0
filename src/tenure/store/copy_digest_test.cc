#include "tenure/store/copy_digest.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tenure/base/random.h"

namespace tenure::store {
namespace {

std::vector<std::byte> RandomBytes(Random& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

kv::BlockHash Hash(uint8_t first, size_t size = 32) {
  std::array<uint8_t, 32> bytes{};
  bytes[0] = first;
  return kv::BlockHash::FromTrusted(std::span(bytes).first(size));
}

TEST(CopyDigest, HoweverAnObjectIsSplitItsDigestIsTheSame) {
  const uint64_t seed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (const size_t size : {size_t{1}, size_t{100}, size_t{16'384}, size_t{16'385}, size_t{100'000}}) {
    const std::vector<std::byte> object = RandomBytes(random, size);
    const uint64_t expected = Digest(77, object);
    for (int round = 0; round < 20; ++round) {
      std::vector<ConstSegment> from;
      std::vector<std::byte> back(size);
      std::vector<Segment> to;
      for (size_t done = 0; done < size;) {
        const size_t step = round == 0 ? size : std::min<size_t>(size - done, random.Below(size) + 1);
        from.push_back({object.data() + done, step});
        to.push_back({back.data() + done, step});
        done += step;
      }
      std::vector<std::byte> stored(size);
      EXPECT_EQ(GatherWithDigest(77, from, stored.data()), expected);
      EXPECT_EQ(stored, object);
      EXPECT_EQ(ScatterWithDigest(77, stored.data(), to), expected);
      EXPECT_EQ(back, object);
    }
  }
}

TEST(CopyDigest, OneBitMakesADifference) {
  Random random(6);
  std::vector<std::byte> object = RandomBytes(random, 50'000);
  const uint64_t digest = Digest(1, object);
  object[33'333] ^= std::byte{4};
  EXPECT_NE(Digest(1, object), digest);
}

TEST(CopyDigest, TheSeedDependsOnAllOfTheKey) {
  std::array<uint8_t, 32> bytes{};
  const uint64_t seed = DigestSeed(1, kv::BlockHash::FromTrusted(bytes));
  bytes[31] = 1;
  EXPECT_NE(DigestSeed(1, kv::BlockHash::FromTrusted(bytes)), seed);
  EXPECT_NE(DigestSeed(2, Hash(0)), DigestSeed(1, Hash(0)));
  EXPECT_NE(DigestSeed(1, Hash(0, 16)), DigestSeed(1, Hash(0, 32)));
}

TEST(CopyDigest, TheDigestIsXxh3SoThatOtherProcessesAgree) {
  // XXH3 64 of nothing with seed 0, from xxHash's own test vectors.
  EXPECT_EQ(Digest(0, {}), 0x2D06800538D394C2u);
}

}  // namespace
}  // namespace tenure::store
