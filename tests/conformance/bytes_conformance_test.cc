// Rules 4, 5 and 8: what a put stores, and that a read gives those bytes or a miss.
#include <algorithm>
#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

using ::testing::ElementsAre;

class PutConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, PutConformance, ::testing::ValuesIn(AllPools()), FactoryName);

class BytesConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, BytesConformance, ::testing::ValuesIn(PoolsWithBytes()), FactoryName);

// `bytes` cut at the given sizes, the last segment taking the rest.
template <typename Piece, typename Byte>
std::vector<Piece> Cut(std::vector<Byte>& bytes, const std::vector<size_t>& sizes) {
  std::vector<Piece> pieces;
  size_t start = 0;
  for (const size_t size : sizes) {
    pieces.push_back({.data = bytes.data() + start, .size = size});
    start += size;
  }
  pieces.push_back({.data = bytes.data() + start, .size = bytes.size() - start});
  return pieces;
}

TEST_P(PutConformance, StoredObjectIsPresentAndCounted) {
  EXPECT_EQ(Put(Key(0)), PutAnswer::kStored);
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kPresent);
  const PoolStats stats = pool().Stats();
  EXPECT_EQ(stats.objects, 1);
  EXPECT_EQ(stats.used, Bytes(kObjectBytes));
  EXPECT_EQ(stats.stored_total, 1);
  EXPECT_EQ(stats.stored_bytes_total, Bytes(kObjectBytes));
  EXPECT_EQ(stats.held.writing, 0);
}

TEST_P(PutConformance, PutOfAPresentKeyChangesNeitherBytesNorRecency) {
  MustStore(Key(0));
  Advance(kTick);
  for (uint64_t i = 1; i < kHighObjects; ++i) MustStore(Key(i));
  Advance(kTick);
  EXPECT_EQ(Put(Key(0), std::nullopt, kObjectBytes, /*version=*/1), PutAnswer::kExists);
  EXPECT_EQ(Get(Key(0), kObjectBytes, /*version=*/0), KeyAnswer::kPresent);
  WritePressure(1);
  EXPECT_FALSE(Present(Key(0)));
}

TEST_P(PutConformance, PutOfAnotherSizeIsToldApart) {
  MustStore(Key(0));
  EXPECT_EQ(Put(Key(0), std::nullopt, kObjectBytes - 1), PutAnswer::kSizeDiffers);
  EXPECT_EQ(Put(Key(0), std::nullopt, kObjectBytes + 1), PutAnswer::kSizeDiffers);
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kPresent);
  EXPECT_EQ(pool().Stats().used, Bytes(kObjectBytes));
}

TEST_P(PutConformance, SecondOfTwoEqualKeysInABatchExists) {
  std::vector<std::byte> bytes(kObjectBytes);
  const std::array<ConstSegment, 1> whole = {{{.data = bytes.data(), .size = bytes.size()}}};
  const std::array<ConstSegment, 1> half = {{{.data = bytes.data(), .size = bytes.size() / 2}}};
  const std::vector<PutObject> objects = {{.key = Key(0), .segments = whole, .parent = std::nullopt},
                                          {.key = Key(1), .segments = whole, .parent = std::nullopt},
                                          {.key = Key(0), .segments = whole, .parent = std::nullopt},
                                          {.key = Key(1), .segments = half, .parent = std::nullopt}};
  std::vector<PutAnswer> answers(objects.size());
  ASSERT_TRUE(pool().Put(objects, answers).ok());
  EXPECT_THAT(answers,
              ElementsAre(PutAnswer::kStored, PutAnswer::kStored, PutAnswer::kExists, PutAnswer::kSizeDiffers));
  EXPECT_EQ(pool().Stats().objects, 2);
}

// A store whose failed put stays visible serves garbage for ever after.
TEST_P(PutConformance, RefusedPutLeavesAMissAndTakesNoSpace) {
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  const Lease lease = MustLease(keys, kLongTtl);
  const Bytes used = pool().Stats().used;
  for (uint64_t i = 1000; i < 1100; ++i) {
    EXPECT_EQ(Put(Key(i)), PutAnswer::kRefusedFull);
    EXPECT_EQ(Get(Key(i)), KeyAnswer::kAbsent);
  }
  EXPECT_EQ(pool().Stats().used, used);
  EXPECT_EQ(pool().Stats().held.writing, 0);
}

TEST_P(PutConformance, ObjectLargerThanThePoolCanHoldIsRefusedByName) {
  EXPECT_EQ(Put(Key(0), std::nullopt, int64_t{257} << 10), PutAnswer::kRefusedSize);
  EXPECT_FALSE(Present(Key(0)));
  EXPECT_EQ(pool().Stats().refused_size_total, 1);
}

TEST_P(BytesConformance, SegmentsArePiecesOfOneObjectHoweverTheyAreCut) {
  for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{1023}, int64_t{1024}, int64_t{5000}, int64_t{16} << 10}) {
    const ObjectKey key = Key(static_cast<uint64_t>(size));
    std::vector<std::byte> bytes = Pattern(key, size, 0);
    const size_t third = bytes.size() / 3;
    const std::vector<ConstSegment> put_pieces = Cut<ConstSegment>(bytes, {third, 0, third / 2});
    const std::array<PutObject, 1> put = {{{.key = key, .segments = put_pieces, .parent = std::nullopt}}};
    std::array<PutAnswer, 1> stored{};
    ASSERT_TRUE(pool().Put(put, stored).ok());
    ASSERT_EQ(stored[0], PutAnswer::kStored) << size;

    std::vector<std::byte> read(bytes.size());
    const std::vector<Segment> get_pieces = Cut<Segment>(read, {bytes.size() / 2, 0});
    const std::array<GetObject, 1> get = {{{.key = key, .segments = get_pieces}}};
    std::array<KeyAnswer, 1> answers{};
    ASSERT_TRUE(pool().Get(get, answers).ok());
    EXPECT_EQ(answers[0], KeyAnswer::kPresent) << size;
    EXPECT_TRUE(read == bytes) << size;
  }
}

TEST_P(BytesConformance, GetIntoBuffersOfAnotherSizeCopiesNothing) {
  MustStore(Key(0));
  for (const size_t size : {size_t{1}, size_t{1023}, size_t{1025}}) {
    std::vector<std::byte> buffer(size, std::byte{0xA5});
    const std::array<Segment, 1> segments = {{{.data = buffer.data(), .size = buffer.size()}}};
    const std::array<GetObject, 1> objects = {{{.key = Key(0), .segments = segments}}};
    std::array<KeyAnswer, 1> answers{};
    ASSERT_TRUE(pool().Get(objects, answers).ok());
    EXPECT_EQ(answers[0], KeyAnswer::kSizeDiffers);
    EXPECT_EQ(std::count(buffer.begin(), buffer.end(), std::byte{0xA5}), static_cast<int64_t>(size));
  }
}

TEST_P(BytesConformance, BatchOfGetsAnswersEachKey) {
  MustStore(Key(0));
  MustStore(Key(2));
  std::vector<std::vector<std::byte>> buffers(3, std::vector<std::byte>(kObjectBytes));
  std::vector<std::array<Segment, 1>> segments;
  std::vector<GetObject> objects;
  for (auto& buffer : buffers) segments.push_back({{{.data = buffer.data(), .size = buffer.size()}}});
  for (uint64_t i = 0; i < 3; ++i) objects.push_back({.key = Key(i), .segments = segments[i]});
  std::vector<KeyAnswer> answers(3);
  ASSERT_TRUE(pool().Get(objects, answers).ok());
  EXPECT_THAT(answers, ElementsAre(KeyAnswer::kPresent, KeyAnswer::kAbsent, KeyAnswer::kPresent));
  EXPECT_TRUE(buffers[0] == Pattern(Key(0), kObjectBytes, 0));
  EXPECT_TRUE(buffers[2] == Pattern(Key(2), kObjectBytes, 0));
}

TEST_P(BytesConformance, SlotsThatChangeHandsNeverShowAnotherKeysBytes) {
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 2 * kRoom; ++i) {
      Put(Key(i), std::nullopt, kObjectBytes, round);
      if (i % 3 == 0) {
        EXPECT_EQ(Get(Key(i), kObjectBytes, round), KeyAnswer::kPresent);
      }
      if (i % 7 == 0) Advance(kTick);
    }
    for (uint64_t i = 0; i < 2 * kRoom; ++i) Get(Key(i), kObjectBytes, round);
    for (uint64_t i = 0; i < 2 * kRoom; ++i) Remove(Key(i));
  }
}

TEST_P(BytesConformance, ObjectPutAgainHasItsNewBytes) {
  MustStore(Key(0));
  ASSERT_EQ(Remove(Key(0)), KeyAnswer::kPresent);
  EXPECT_EQ(Put(Key(0), std::nullopt, 2 * kObjectBytes, /*version=*/1), PutAnswer::kStored);
  EXPECT_EQ(Get(Key(0), 2 * kObjectBytes, /*version=*/1), KeyAnswer::kPresent);
  EXPECT_EQ(Get(Key(0), kObjectBytes), KeyAnswer::kSizeDiffers);
}

// Whoever changed the bytes, the reader gets a miss, once with the failure counted, and nobody after it finds the key.
TEST_P(BytesConformance, ChangedByteIsAMissAndTheObjectLeaves) {
  if (Declares(Difference::kNoChecksum)) GTEST_SKIP() << "no digest";
  MustStore(Key(0));
  MustStore(Key(1));
  const Lease lease = MustLease({Key(0)}, kLongTtl);
  if (!Corrupt(Key(0))) GTEST_SKIP() << "the test cannot reach this pool's bytes";
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kAbsent);
  EXPECT_FALSE(Present(Key(0)));
  EXPECT_EQ(pool().Stats().checksum_failures_total, 1);
  EXPECT_EQ(Get(Key(1)), KeyAnswer::kPresent);
  EXPECT_EQ(Put(Key(0), std::nullopt, kObjectBytes, /*version=*/1), PutAnswer::kStored);
  EXPECT_EQ(Get(Key(0), kObjectBytes, /*version=*/1), KeyAnswer::kPresent);
}

}  // namespace
}  // namespace tenure::store::conformance
