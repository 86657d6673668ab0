// The fixture of the embedded pool's tests: a pool without bytes on a clock moved by hand, and objects named by
// numbers.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tenure/base/random.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::store {

inline constexpr int64_t kSlab = 64 << 10;
inline constexpr int64_t kSmall = 4 << 10;

class EmbeddedPoolTest : public testing::Test {
 protected:
  static EmbeddedPoolOptions Options(int64_t slabs, PoolMode mode = PoolMode::kClosed) {
    EmbeddedPoolOptions options;
    options.capacity = Bytes(slabs * kSlab);
    options.slab_bytes = Bytes(kSlab);
    options.mode = mode;
    options.memory = MemoryKind::kVirtual;
    options.objects_max = 4096;
    options.shards = 8;
    return options;
  }
  void Make(const EmbeddedPoolOptions& options) {
    auto pool = EmbeddedPool::Create(options, clock_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
    name_space_ = pool_->OpenNamespace("test").value();
  }
  // Objects leave one by one, each for a put that needs its slot.
  void MakeWithoutPasses(EmbeddedPoolOptions options) {
    options.high_watermark = 1.0;
    options.low_watermark = 1.0;
    Make(options);
  }

  ObjectKey Key(uint64_t number) const {
    std::array<uint8_t, 32> bytes{};
    for (size_t at = 0; at < 4; ++at) {
      const uint64_t word = Random::Mix(number * 4 + at + 1);
      std::memcpy(bytes.data() + at * 8, &word, 8);
    }
    return {name_space_, kv::BlockHash::FromTrusted(bytes)};
  }
  PutAnswer Put(uint64_t number, std::optional<uint64_t> parent = std::nullopt, int64_t size = kSmall) {
    const ConstSegment segment{nullptr, static_cast<size_t>(size)};
    PutObject object{Key(number), {&segment, 1}, std::nullopt, ObjectKind::kFull};
    if (parent.has_value()) object.parent = Key(*parent);
    PutAnswer answer = PutAnswer::kNotStored;
    EXPECT_TRUE(pool_->Put({&object, 1}, {&answer, 1}).ok());
    return answer;
  }
  bool Present(uint64_t number) {
    const ObjectKey key = Key(number);
    KeyAnswer answer = KeyAnswer::kAbsent;
    EXPECT_TRUE(pool_->Probe({&key, 1}, {&answer, 1}).ok());
    return answer == KeyAnswer::kPresent;
  }
  int CountPresent(uint64_t first, uint64_t end) {
    int count = 0;
    for (uint64_t number = first; number < end; ++number) count += Present(number);
    return count;
  }
  Lease LeaseOf(uint64_t number, absl::Duration ttl = absl::Seconds(10)) {
    const ObjectKey key = Key(number);
    KeyAnswer answer = KeyAnswer::kAbsent;
    return pool_->AcquireLease({&key, 1}, ttl, {&answer, 1}).value();
  }
  bool Remove(uint64_t number) {
    const ObjectKey key = Key(number);
    KeyAnswer answer = KeyAnswer::kAbsent;
    EXPECT_TRUE(pool_->Remove({&key, 1}, {&answer, 1}).ok());
    return answer == KeyAnswer::kPresent;
  }
  Reservation Reserve(uint64_t number, PutAnswer& answer, std::optional<uint64_t> parent = std::nullopt) {
    const ConstSegment segment{nullptr, kSmall};
    PutObject object{Key(number), {&segment, 1}, std::nullopt, ObjectKind::kFull};
    if (parent.has_value()) object.parent = Key(*parent);
    auto made = pool_->Reserve({&object, 1}, {&answer, 1});
    EXPECT_TRUE(made.ok());
    return std::move(made->front());
  }

  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
  NamespaceId name_space_;
};

}  // namespace tenure::store
