#include "bindings/pool_handle.h"

#include <algorithm>

#include "bindings/convert.h"
#include "bindings/errors.h"
#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {

absl::StatusOr<std::shared_ptr<store::Pool>> PoolState::Open() const {
  MutexLock lock(mutex_);
  if (pool_ == nullptr) return FailedPrecondition("the pool is closed; make a new one");
  return pool_;
}

void PoolState::Close() {
  std::shared_ptr<store::Pool> last;
  MutexLock lock(mutex_);
  last.swap(pool_);
}

PoolHandle::~PoolHandle() {
  nb::gil_scoped_release unlocked;
  state_->Close();
}

std::shared_ptr<store::Pool> PoolHandle::Open() const { return ValueOrThrow(state_->Open()); }

void LeaseHandle::Release() {
  nb::gil_scoped_release unlocked;
  std::vector<store::Lease> leases;
  {
    MutexLock lock(mutex_);
    leases.swap(leases_);
  }
  for (store::Lease& lease : leases) lease.Release();
}

void LeaseHandle::Forget() {
  MutexLock lock(mutex_);
  for (store::Lease& lease : leases_) lease.Forget();
  leases_.clear();
}

double LeaseHandle::DeadlineSeconds() const {
  MutexLock lock(mutex_);
  int64_t earliest = INT64_MAX;
  for (const store::Lease& lease : leases_) {
    if (lease.size() > 0) earliest = std::min(earliest, lease.deadline().nanoseconds());
  }
  return earliest == INT64_MAX ? 0 : static_cast<double>(earliest) * 1e-9;
}

size_t LeaseHandle::size() const {
  MutexLock lock(mutex_);
  size_t size = 0;
  for (const store::Lease& lease : leases_) size += lease.size();
  return size;
}

std::vector<std::vector<store::NamespaceId>> NamespaceIdsFrom(const PoolState& owner,
                                                              const NamespaceLists& namespaces) {
  std::vector<std::vector<store::NamespaceId>> ids;
  for (size_t group = 0; group < namespaces.size(); ++group) {
    auto& list = ids.emplace_back();
    for (const NamespaceHandle& name_space : namespaces[group]) {
      if (name_space.owner.get() != &owner) {
        Throw(InvalidArgument("namespaces[{}] has \"{}\" of another pool; open it in this one", group,
                              name_space.prefix));
      }
      list.push_back(name_space.id);
    }
  }
  return ids;
}

store::ObjectKey KeyFrom(const PoolState& owner, size_t index, nb::handle item) {
  NamespaceHandle* name_space = nullptr;
  if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2 ||
      !nb::try_cast(nb::handle(PyTuple_GET_ITEM(item.ptr(), 0)), name_space) || name_space == nullptr) {
    Throw(InvalidArgument("keys[{}] is no (Namespace, hash) tuple; open_namespace gives the first", index));
  }
  if (name_space->owner.get() != &owner) {
    Throw(InvalidArgument("keys[{}] has the namespace \"{}\" of another pool; open it in this one", index,
                          name_space->prefix));
  }
  PyObject* hash = PyTuple_GET_ITEM(item.ptr(), 1);
  if (!PyBytes_Check(hash)) Throw(InvalidArgument("keys[{}] has a hash that is not bytes; use 16 or 32 bytes", index));
  return {name_space->id, HashFrom("hash of a key", nb::borrow<nb::bytes>(hash))};
}

std::vector<store::ObjectKey> KeysFrom(const PoolState& owner, const nb::sequence& keys) {
  std::vector<store::ObjectKey> result;
  result.reserve(nb::len(keys));
  for (const nb::handle item : keys) result.push_back(KeyFrom(owner, result.size(), item));
  return result;
}

}  // namespace tenure::python
