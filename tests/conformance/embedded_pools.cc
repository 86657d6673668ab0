// The embedded pool in the conformance suite: both modes, with and without bytes, one shard and many.
#include <cstddef>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/clock.h"
#include "tenure/store/embedded_pool.h"
#include "tests/conformance/conformance_fixture.h"
#include "tests/conformance/daemon_pools.h"
#include "tests/conformance/pool_under_test.h"
#include "tests/conformance/pool_with_differences.h"

namespace tenure::store::conformance {
namespace {

class EmbeddedUnderTest final : public PoolUnderTest {
 public:
  EmbeddedUnderTest(const PoolSetup& setup, EmbeddedPoolOptions options) {
    options.capacity = setup.capacity;
    options.slab_bytes = setup.slab_bytes;
    pool_ = EmbeddedPool::Create(std::move(options), clock_).value();
  }

  Pool& pool() override { return *pool_; }
  void Advance(absl::Duration by) override { clock_.Advance(by); }
  void Settle() override {
    while (pool_->Maintain()) {
    }
  }
  bool Corrupt(const ObjectKey& key) override {
    KeyAnswer answer = KeyAnswer::kAbsent;
    const auto pinned = pool_->Pin({&key, 1}, {&answer, 1}).value();
    if (answer != KeyAnswer::kPresent || pinned[0].memory().address == nullptr) return false;
    pinned[0].memory().address[0] ^= std::byte{1};
    return true;
  }

 private:
  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
};

// Holds the embedded pool twice over: as itself, for its maintenance, and behind the differences.
class DifferentUnderTest final : public PoolUnderTest {
 public:
  explicit DifferentUnderTest(const PoolSetup& setup) {
    EmbeddedPoolOptions options;
    options.mode = PoolMode::kIndependent;
    options.capacity = setup.capacity;
    options.slab_bytes = setup.slab_bytes;
    std::unique_ptr<EmbeddedPool> embedded = EmbeddedPool::Create(std::move(options), clock_).value();
    embedded_ = embedded.get();
    pool_ = std::make_unique<PoolWithDifferences>(std::move(embedded), clock_, kLongTtl);
  }

  Pool& pool() override { return *pool_; }
  void Advance(absl::Duration by) override { clock_.Advance(by); }
  void Settle() override {
    while (embedded_->Maintain()) {
    }
  }
  bool Corrupt(const ObjectKey&) override { return false; }

 private:
  ManualClock clock_;
  std::unique_ptr<PoolWithDifferences> pool_;
  EmbeddedPool* embedded_;
};

PoolFactory Embedded(std::string name, PoolMode mode, MemoryKind memory, int shards) {
  EmbeddedPoolOptions options;
  options.mode = mode;
  options.memory = memory;
  options.shards = shards;
  return {.name = std::move(name),
          .closed = mode == PoolMode::kClosed,
          .has_bytes = memory == MemoryKind::kMapped,
          .known_differences = {},
          .make = [options](const PoolSetup& setup) { return std::make_unique<EmbeddedUnderTest>(setup, options); }};
}

std::vector<PoolFactory> PoolsWhere(bool (*chosen)(const PoolFactory& factory)) {
  std::vector<PoolFactory> pools;
  for (PoolFactory& factory : AllPools()) {
    if (chosen(factory)) pools.push_back(std::move(factory));
  }
  return pools;
}

}  // namespace

std::vector<PoolFactory> AllPools() {
  std::vector<PoolFactory> pools = {
      Embedded("EmbeddedClosed", PoolMode::kClosed, MemoryKind::kMapped, 8),
      Embedded("EmbeddedIndependent", PoolMode::kIndependent, MemoryKind::kMapped, 8),
      Embedded("EmbeddedClosedOneShard", PoolMode::kClosed, MemoryKind::kVirtual, 1),
      Embedded("EmbeddedIndependentOneShard", PoolMode::kIndependent, MemoryKind::kVirtual, 1),
      {.name = "WithDifferences",
       .closed = false,
       .has_bytes = true,
       .known_differences = {Difference::kOneLeaseTtl, Difference::kNoPin},
       .make = [](const PoolSetup& setup) { return std::make_unique<DifferentUnderTest>(setup); }},
  };
  for (PoolFactory& daemon : DaemonPools()) pools.push_back(std::move(daemon));
  return pools;
}

std::vector<PoolFactory> ClosedPools() {
  return PoolsWhere([](const PoolFactory& factory) { return factory.closed; });
}

std::vector<PoolFactory> PoolsWithBytes() {
  return PoolsWhere([](const PoolFactory& factory) { return factory.has_bytes; });
}

}  // namespace tenure::store::conformance
