// A pool as Python holds it: shared with the leases and lookups made from it, closed at most once.
//
// Python's Pool, Namespace and Lease objects hold these. Thread-safe. A pool's methods run without the interpreter's
// lock.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/memory_registry.h"
#include "tenure/base/mutex.h"
#include "tenure/engine/block_memory.h"
#include "tenure/engine/copier.h"
#include "tenure/engine/forwarding_pool.h"
#include "tenure/store/lease.h"
#include "tenure/store/pool.h"

namespace tenure::python {

class PoolState {
 public:
  explicit PoolState(std::shared_ptr<store::Pool> pool) : pool_(std::move(pool)) {}

  // FailedPrecondition after Close.
  absl::StatusOr<std::shared_ptr<store::Pool>> Open() const;
  // Later calls fail; calls under way and leases keep the pool until they end. Idempotent. Without the interpreter's
  // lock, since the end of a pool may wait for its threads.
  void Close();

  MemoryRegistry memory;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<store::Pool> pool_ ABSL_GUARDED_BY(mutex_);
};

// A pool for threads of the caller's own, whose calls may block for as long as they do.
struct BackgroundPool {
  std::shared_ptr<store::Pool> pool;
  absl::Duration patience = absl::InfiniteDuration();  // How long the end of those threads is to be waited for.
};

// A pool whose puts and gets name a device's memory, which it reads and writes itself: nothing of that goes on when
// they have returned.
class DevicePool : public engine::ForwardingPool {
 public:
  using ForwardingPool::ForwardingPool;
  // The memory may go once this has returned. No put or get runs by then and none comes after it. Idempotent; with or
  // without the interpreter's lock.
  virtual void End() = 0;
};

// What the Python classes of pools are; subclasses add how one is made.
class PoolHandle {
 public:
  explicit PoolHandle(std::shared_ptr<store::Pool> pool) : state_(std::make_shared<PoolState>(std::move(pool))) {}
  virtual ~PoolHandle();
  PoolHandle(const PoolHandle&) = delete;
  PoolHandle& operator=(const PoolHandle&) = delete;

  const std::shared_ptr<PoolState>& state() const { return state_; }
  // The pool, or the exception that says it is closed.
  std::shared_ptr<store::Pool> Open() const;
  // The same pool. Where its calls have no end, threads that still run after `patience` are left behind with it.
  virtual BackgroundPool OpenInBackground() const { return {Open()}; }
  // The same pool for KV in `regions` of `device`'s memory, each of which stays mapped until End. Null where the pool
  // cannot reach such memory: copies go through memory of the host then.
  virtual std::shared_ptr<DevicePool> OpenOnDevice(const std::shared_ptr<engine::Copier>& /*device*/,
                                                   const std::vector<engine::MemoryRange>& /*regions*/) const {
    return nullptr;
  }

 private:
  std::shared_ptr<PoolState> state_;
};

// A key prefix of one pool.
struct NamespaceHandle {
  std::shared_ptr<PoolState> owner;
  store::NamespaceId id;
  std::string prefix;
};

// Leases and the pool that they live in. Ends them without the interpreter's lock.
class LeaseHandle {
 public:
  LeaseHandle(std::shared_ptr<store::Pool> pool, std::vector<store::Lease> leases)
      : pool_(std::move(pool)), leases_(std::move(leases)) {}
  ~LeaseHandle() { Release(); }
  LeaseHandle(const LeaseHandle&) = delete;
  LeaseHandle& operator=(const LeaseHandle&) = delete;

  // Both idempotent and thread-safe.
  void Release();
  void Forget();
  // The earliest deadline in seconds of CLOCK_MONOTONIC, as time.monotonic() reads; 0 when nothing is held.
  double DeadlineSeconds() const;
  size_t size() const;

 private:
  std::shared_ptr<store::Pool> pool_;
  mutable Mutex mutex_;
  std::vector<store::Lease> leases_ ABSL_GUARDED_BY(mutex_);
};

// The ids of each group's namespaces, which this pool has opened; ValueError names the one of another pool.
using NamespaceLists = std::vector<std::vector<NamespaceHandle>>;
std::vector<std::vector<store::NamespaceId>> NamespaceIdsFrom(const PoolState& owner, const NamespaceLists& namespaces);

// One element of a sequence of keys: a (Namespace, hash) pair of this pool.
store::ObjectKey KeyFrom(const PoolState& owner, size_t index, nanobind::handle item);
std::vector<store::ObjectKey> KeysFrom(const PoolState& owner, const nanobind::sequence& keys);

}  // namespace tenure::python
