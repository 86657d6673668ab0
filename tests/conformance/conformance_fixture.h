// The fixture of the conformance suite: short calls on one pool, with bytes that tell key and put apart.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/pool_under_test.h"

namespace tenure::store::conformance {

// More than the 64 ms within which recencies count as equal.
inline constexpr absl::Duration kTick = absl::Milliseconds(100);
// Outlasts what a test does under a lease. The TTL of a pool that has one for all (Difference::kOneLeaseTtl).
inline constexpr absl::Duration kLongTtl = absl::Minutes(10);
inline constexpr int64_t kObjectBytes = 1024;
// What the default setup holds, and its watermarks in objects.
inline constexpr int kRoom = 256;
inline constexpr int kHighObjects = 243;
inline constexpr int kLowObjects = 218;

class PoolConformance : public ::testing::TestWithParam<PoolFactory> {
 protected:
  PoolConformance() { Start(PoolSetup()); }
  // Replaces the pool by an empty one.
  void Start(const PoolSetup& setup);

  Pool& pool() { return under_test_->pool(); }
  bool Declares(Difference difference);
  // Short, where the pool lets the caller choose.
  absl::Duration ShortTtl() { return Declares(Difference::kOneLeaseTtl) ? kLongTtl : absl::Seconds(10); }
  void Advance(absl::Duration by) { under_test_->Advance(by); }
  void Settle() { under_test_->Settle(); }
  bool Corrupt(const ObjectKey& key) { return under_test_->Corrupt(key); }

  // The key of a number in the test's namespace or another; equal numbers, equal keys. Half of the hashes are 16 and
  // half 32 bytes.
  ObjectKey Key(uint64_t number) const { return Key(number, name_space_); }
  static ObjectKey Key(uint64_t number, NamespaceId name_space);
  std::vector<ObjectKey> Keys(uint64_t first, uint64_t count) const;
  NamespaceId name_space() const { return name_space_; }

  // One object whose bytes follow from the key and `version`.
  PutAnswer Put(const ObjectKey& key, std::optional<ObjectKey> parent = std::nullopt, int64_t size = kObjectBytes,
                int version = 0);
  void MustStore(const ObjectKey& key, std::optional<ObjectKey> parent = std::nullopt);
  // Stores Key(first)... each with the one before as its parent, a tick apart.
  void MustStoreChain(uint64_t first, uint64_t count);
  // Puts `count` objects never used before, a millisecond apart and without a parent, and lets the pool do its work
  // after each. Returns how many were stored.
  int WritePressure(int count);

  KeyAnswer Probe(const ObjectKey& key);
  bool Present(const ObjectKey& key) { return Probe(key) == KeyAnswer::kPresent; }
  int CountPresent(const std::vector<ObjectKey>& keys);
  // All keys must be present.
  Lease MustLease(const std::vector<ObjectKey>& keys, absl::Duration ttl);
  // Reads the object; when it is present its bytes must be those of `version`.
  KeyAnswer Get(const ObjectKey& key, int64_t size = kObjectBytes, int version = 0);
  KeyAnswer Remove(const ObjectKey& key);

  static std::vector<std::byte> Pattern(const ObjectKey& key, int64_t size, int version);

 private:
  std::unique_ptr<PoolUnderTest> under_test_;
  NamespaceId name_space_;
  uint64_t next_pressure_key_ = 0;
};

// As INSTANTIATE_TEST_SUITE_P's last argument.
inline std::string FactoryName(const ::testing::TestParamInfo<PoolFactory>& info) { return info.param.name; }

}  // namespace tenure::store::conformance
