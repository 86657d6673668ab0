// How the conformance suite makes a pool and moves its world: one factory for each kind of pool that must keep the
// contract.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/units.h"
#include "tenure/store/pool.h"

namespace tenure::store::conformance {

// Small, so that a test fills it at once: 256 objects of 1 KiB.
struct PoolSetup {
  Bytes capacity{256 << 10};
  Bytes slab_bytes{16 << 10};
};

class PoolUnderTest {
 public:
  virtual ~PoolUnderTest() = default;
  virtual Pool& pool() = 0;
  // The pool's time moves on: a manual clock, or a wait where the pool has its own.
  virtual void Advance(absl::Duration by) = 0;
  // Lets the work that the pool does off the callers' path come to its end.
  virtual void Settle() = 0;
  // Changes one stored byte of a present object behind the pool's back. False where the test cannot reach the bytes.
  virtual bool Corrupt(const ObjectKey& key) = 0;
};

struct PoolFactory {
  std::string name;  // Letters and digits.
  bool closed = false;
  bool has_bytes = true;
  // What this kind of pool may declare in its traits; one that declares anything else fails.
  std::vector<Difference> known_differences;
  std::function<std::unique_ptr<PoolUnderTest>(const PoolSetup& setup)> make;
};
inline std::ostream& operator<<(std::ostream& out, const PoolFactory& factory) { return out << factory.name; }

std::vector<PoolFactory> AllPools();
std::vector<PoolFactory> ClosedPools();
std::vector<PoolFactory> PoolsWithBytes();

}  // namespace tenure::store::conformance
