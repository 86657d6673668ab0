#include "tenure/store/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "tenure/base/random.h"

namespace tenure::store {
namespace {

TEST(StreamCopy, CopiesWhereverBothSidesBeginAndWritesNothingElse) {
  const uint64_t seed = 9;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  std::vector<std::byte> from(1000);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  for (int round = 0; round < 5'000; ++round) {
    const size_t from_begin = random.Below(300);
    const size_t to_begin = random.Below(300);
    const size_t size = random.Below(600);
    std::vector<std::byte> to(1000, std::byte{0});
    std::vector<std::byte> expected = to;
    for (size_t i = 0; i < size; ++i) expected[to_begin + i] = from[from_begin + i];
    StreamCopy(to.data() + to_begin, from.data() + from_begin, size);
    EndStreaming();
    ASSERT_EQ(to, expected) << size << " bytes from " << from_begin << " to " << to_begin;
  }
}

}  // namespace
}  // namespace tenure::store
