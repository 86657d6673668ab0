// Rules 9 and 10: removal, and input that is refused without a change.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"
#include "tests/conformance/conformance_fixture.h"

namespace tenure::store::conformance {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RemovalConformance : public PoolConformance {};
INSTANTIATE_TEST_SUITE_P(Pool, RemovalConformance, ::testing::ValuesIn(AllPools()), FactoryName);

class BadInputConformance : public PoolConformance {
 protected:
  // `status` is InvalidArgument, its text names `argument`, and the pool holds what it held.
  void ExpectRefused(const absl::Status& status, std::string_view argument) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::string(argument)));
    EXPECT_EQ(pool().Stats().objects, 0);
    EXPECT_EQ(pool().Stats().used, Bytes(0));
  }
  absl::Status TryPut(const std::vector<PutObject>& objects) {
    std::vector<PutAnswer> answers(objects.size());
    return pool().Put(objects, answers);
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(kObjectBytes);
  std::array<ConstSegment, 1> good_ = {{{.data = bytes_.data(), .size = bytes_.size()}}};
};
INSTANTIATE_TEST_SUITE_P(Pool, BadInputConformance, ::testing::ValuesIn(AllPools()), FactoryName);

TEST_P(RemovalConformance, RemovedKeyIsAbsentAtOnceEvenWhenLeased) {
  MustStore(Key(0));
  const Lease lease = MustLease({Key(0)}, kLongTtl);
  EXPECT_EQ(Remove(Key(0)), KeyAnswer::kPresent);
  EXPECT_EQ(Get(Key(0)), KeyAnswer::kAbsent);
  EXPECT_FALSE(Present(Key(0)));
  EXPECT_EQ(pool().Stats().objects, 0);
  EXPECT_EQ(pool().Stats().used, Bytes(0));
  EXPECT_EQ(pool().Stats().held.leased, 0);
  EXPECT_EQ(pool().Stats().removed_total, 1);
  EXPECT_EQ(pool().Stats().evicted_total, 0);
}

TEST_P(RemovalConformance, RemovingWhatIsNotThereIsAnAnswer) {
  EXPECT_EQ(Remove(Key(0)), KeyAnswer::kAbsent);
  MustStore(Key(1));
  const std::vector<ObjectKey> keys = {Key(1), Key(1), Key(0)};
  std::vector<KeyAnswer> answers(keys.size());
  ASSERT_TRUE(pool().Remove(keys, answers).ok());
  EXPECT_THAT(answers, ElementsAre(KeyAnswer::kPresent, KeyAnswer::kAbsent, KeyAnswer::kAbsent));
}

TEST_P(RemovalConformance, RemovalMakesRoomUnderLeases) {
  const std::vector<ObjectKey> keys = Keys(0, kRoom);
  for (const ObjectKey& key : keys) Put(key);
  const Lease lease = MustLease(keys, kLongTtl);
  ASSERT_EQ(Put(Key(1000)), PutAnswer::kRefusedFull);
  ASSERT_EQ(Remove(Key(17)), KeyAnswer::kPresent);
  EXPECT_EQ(Put(Key(1000)), PutAnswer::kStored);
}

TEST_P(RemovalConformance, ClearTakesOneNamespaceOrAll) {
  const NamespaceId other = pool().OpenNamespace("model-b@tp0").value();
  for (uint64_t i = 0; i < 50; ++i) MustStore(Key(i));
  for (uint64_t i = 0; i < 30; ++i) MustStore(Key(i, other));
  const Lease lease = MustLease(Keys(0, 50), kLongTtl);
  EXPECT_EQ(pool().Clear(name_space()).value(), 50);
  EXPECT_EQ(CountPresent(Keys(0, 50)), 0);
  EXPECT_TRUE(Present(Key(7, other)));
  EXPECT_EQ(pool().Clear(std::nullopt).value(), 30);
  EXPECT_EQ(pool().Stats().objects, 0);
  EXPECT_EQ(pool().Stats().used, Bytes(0));
  EXPECT_EQ(pool().Clear(std::nullopt).value(), 0);
}

// A store's index that only grows takes the machine down after days.
TEST_P(RemovalConformance, FillAndClearLeaveTheIndexAsItWas) {
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 3 * kRoom; ++i) Put(Key(static_cast<uint64_t>(round) * 1000 + i));
    ASSERT_TRUE(pool().Clear(std::nullopt).ok());
  }
  const Bytes after = pool().Stats().index_bytes;
  for (int round = 20; round < 100; ++round) {
    for (uint64_t i = 0; i < 3 * kRoom; ++i) Put(Key(static_cast<uint64_t>(round) * 1000 + i));
    ASSERT_TRUE(pool().Clear(std::nullopt).ok());
  }
  EXPECT_EQ(pool().Stats().index_bytes, after);
  EXPECT_EQ(pool().Stats().used, Bytes(0));
}

TEST_P(BadInputConformance, NamespaceNamesAreChecked) {
  const int64_t before = pool().Stats().namespaces;
  const std::string with_nul("model\0x", 7);
  for (const std::string& name : {std::string(), with_nul, std::string(Pool::kNamespaceNameMax + 1, 'x')}) {
    ExpectRefused(pool().OpenNamespace(name).status(), "prefix");
  }
  EXPECT_TRUE(pool().OpenNamespace(std::string(Pool::kNamespaceNameMax, 'x')).ok());
  EXPECT_EQ(pool().Stats().namespaces, before + 1);
}

TEST_P(BadInputConformance, KeysAreChecked) {
  const ObjectKey no_hash = {.name_space = name_space(), .hash = kv::BlockHash()};
  const ObjectKey no_namespace = Key(1, NamespaceId(12'345));
  const std::array<Segment, 1> segments = {{{.data = bytes_.data(), .size = bytes_.size()}}};
  std::vector<KeyAnswer> answers(2);
  for (const ObjectKey& bad : {no_hash, no_namespace}) {
    const std::vector<ObjectKey> keys = {Key(0), bad};
    ExpectRefused(pool().Probe(keys, answers), "keys[1]");
    ExpectRefused(pool().AcquireLease(keys, absl::Seconds(1), answers).status(), "keys[1]");
    ExpectRefused(pool().Remove(keys, answers), "keys[1]");
    ExpectRefused(TryPut({{.key = Key(0), .segments = good_, .parent = std::nullopt},
                          {.key = bad, .segments = good_, .parent = std::nullopt}}),
                  "objects[1]");
    const std::vector<GetObject> gets = {{.key = Key(0), .segments = segments}, {.key = bad, .segments = segments}};
    ExpectRefused(pool().Get(gets, answers), "objects[1]");
    if (pool().traits().closed) {
      ExpectRefused(TryPut({{.key = Key(0), .segments = good_, .parent = bad}}), "parent");
    }
  }
  ExpectRefused(pool().Clear(NamespaceId(12'345)).status(), "name");
}

TEST_P(BadInputConformance, AnswersMustFitTheKeys) {
  std::vector<KeyAnswer> answers(3);
  std::vector<PutAnswer> put_answers(3);
  const std::vector<ObjectKey> keys = Keys(0, 2);
  const std::vector<PutObject> objects = {{.key = Key(0), .segments = good_, .parent = std::nullopt}};
  ExpectRefused(pool().Probe(keys, answers), "answers");
  ExpectRefused(pool().Probe(keys, std::span(answers).first(1)), "answers");
  ExpectRefused(pool().AcquireLease(keys, absl::Seconds(1), answers).status(), "answers");
  ExpectRefused(pool().Remove(keys, answers), "answers");
  ExpectRefused(pool().Put(objects, put_answers), "answers");
  ExpectRefused(pool().Get({}, answers), "answers");
}

TEST_P(BadInputConformance, LeaseTimesAreChecked) {
  std::vector<KeyAnswer> answers(1);
  for (const absl::Duration ttl : {absl::ZeroDuration(), -absl::Seconds(1), Pool::kLeaseTtlMax + absl::Nanoseconds(1),
                                   absl::InfiniteDuration(), -absl::InfiniteDuration()}) {
    ExpectRefused(pool().AcquireLease(Keys(0, 1), ttl, answers).status(), "ttl");
  }
  EXPECT_TRUE(pool().AcquireLease(Keys(0, 1), Pool::kLeaseTtlMax, answers).ok());
}

// One bad object spoils its batch, and the good ones beside it are not stored.
TEST_P(BadInputConformance, SizesAreChecked) {
  constexpr size_t kHuge = std::numeric_limits<size_t>::max() / 2 + 1;  // 2^63
  const std::array<ConstSegment, 1> empty = {{{.data = bytes_.data(), .size = 0}}};
  const std::array<ConstSegment, 1> huge = {{{.data = bytes_.data(), .size = kHuge}}};
  const std::array<ConstSegment, 2> wraps = {
      {{.data = bytes_.data(), .size = kHuge}, {.data = bytes_.data(), .size = kHuge}}};
  const std::vector<std::span<const ConstSegment>> bad = {{}, empty, huge, wraps};
  for (const std::span<const ConstSegment> segments : bad) {
    ExpectRefused(TryPut({{.key = Key(0), .segments = good_, .parent = std::nullopt},
                          {.key = Key(1), .segments = segments, .parent = std::nullopt}}),
                  "objects[1]");
  }
  if (!GetParam().has_bytes) return;
  const std::array<ConstSegment, 1> null = {{{.data = nullptr, .size = 8}}};
  ExpectRefused(TryPut({{.key = Key(0), .segments = good_, .parent = std::nullopt},
                        {.key = Key(1), .segments = null, .parent = std::nullopt}}),
                "objects[1]");
  const std::array<Segment, 1> null_target = {{{.data = nullptr, .size = 8}}};
  std::vector<KeyAnswer> answers(1);
  ExpectRefused(pool().Get(std::array<GetObject, 1>{{{.key = Key(0), .segments = null_target}}}, answers),
                "objects[0]");
}

}  // namespace
}  // namespace tenure::store::conformance
