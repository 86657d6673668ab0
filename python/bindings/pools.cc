// The pool contract for Python: keys and memory in, one answer a key out. What waits runs without the interpreter's
// lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/metrics.h"
#include "bindings/pool_handle.h"
#include "bindings/segments.h"
#include "tenure/base/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

// Runs `call` without the interpreter's lock and raises what it answers.
template <typename Call>
void WithoutLock(Call call) {
  absl::Status status;
  {
    nb::gil_scoped_release unlocked;
    status = call();
  }
  ThrowIfError(status);
}

template <typename Answer>
nb::list ListOf(const std::vector<Answer>& answers) {
  nb::list list;
  for (const Answer answer : answers) list.append(answer);
  return list;
}

nb::list Probe(PoolHandle& self, const nb::sequence& keys) {
  const auto pool = self.Open();
  const std::vector<store::ObjectKey> batch = KeysFrom(*self.state(), keys);
  std::vector<store::KeyAnswer> answers(batch.size(), store::KeyAnswer::kUnavailable);
  WithoutLock([&] { return pool->Probe(batch, answers); });
  return ListOf(answers);
}

nb::tuple AcquireLease(PoolHandle& self, const nb::sequence& keys, double ttl) {
  const auto pool = self.Open();
  const absl::Duration duration = DurationFrom("ttl", ttl, store::Pool::kLeaseTtlMax);
  const std::vector<store::ObjectKey> batch = KeysFrom(*self.state(), keys);
  std::vector<store::KeyAnswer> answers(batch.size(), store::KeyAnswer::kUnavailable);
  std::vector<store::Lease> leases;
  WithoutLock([&] {
    auto lease = pool->AcquireLease(batch, duration, answers);
    if (lease.ok()) leases.push_back(*std::move(lease));
    return lease.status();
  });
  return nb::make_tuple(std::make_shared<LeaseHandle>(pool, std::move(leases)), ListOf(answers));
}

store::ObjectKind KindFrom(const std::string& text) {
  if (text == "full") return store::ObjectKind::kFull;
  if (text == "window") return store::ObjectKind::kWindow;
  if (text == "state") return store::ObjectKind::kState;
  if (text == "chunked") return store::ObjectKind::kChunked;
  if (text == "other") return store::ObjectKind::kOther;
  Throw(InvalidArgument("kind is \"{}\"; use full, window, state, chunked or other", text.substr(0, 64)));
}

void CheckCount(size_t keys, std::string_view what, size_t count) {
  if (keys != count) Throw(InvalidArgument("{} has {} entries for {} keys; give one a key", what, count, keys));
}

nb::list PutSegments(PoolHandle& self, const nb::sequence& keys, const SegmentBatch& memory, const nb::object& parents,
                     const std::string& kind) {
  const auto pool = self.Open();
  const std::vector<store::ObjectKey> batch = KeysFrom(*self.state(), keys);
  CheckCount(batch.size(), "buffers", memory.size());
  const auto segments = memory.As<store::ConstSegment>();
  std::vector<store::PutObject> objects(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    objects[i].key = batch[i];
    objects[i].segments = segments[i];
    objects[i].kind = KindFrom(kind);
  }
  if (!parents.is_none()) {
    const auto list = nb::cast<nb::sequence>(parents);
    CheckCount(batch.size(), "parents", nb::len(list));
    for (size_t i = 0; i < batch.size(); ++i) {
      const nb::object parent = list[i];
      if (!parent.is_none()) objects[i].parent = KeyFrom(*self.state(), i, parent);
    }
  }
  std::vector<store::PutAnswer> answers(batch.size(), store::PutAnswer::kNotStored);
  WithoutLock([&] { return pool->Put(objects, answers); });
  return ListOf(answers);
}

nb::list GetSegments(PoolHandle& self, const nb::sequence& keys, const SegmentBatch& memory) {
  const auto pool = self.Open();
  const std::vector<store::ObjectKey> batch = KeysFrom(*self.state(), keys);
  CheckCount(batch.size(), "buffers", memory.size());
  const auto segments = memory.As<store::Segment>();
  std::vector<store::GetObject> objects(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) objects[i] = {batch[i], segments[i]};
  std::vector<store::KeyAnswer> answers(batch.size(), store::KeyAnswer::kUnavailable);
  WithoutLock([&] { return pool->Get(objects, answers); });
  return ListOf(answers);
}

nb::list Put(PoolHandle& self, const nb::sequence& keys, const nb::sequence& buffers, const nb::object& parents,
             const std::string& kind) {
  SegmentBatch memory;
  memory.AddBuffers(buffers, SegmentBatch::Access::kRead);
  return PutSegments(self, keys, memory, parents, kind);
}

nb::list PutFrom(PoolHandle& self, const nb::sequence& keys, const nb::sequence& addresses, const nb::sequence& sizes,
                 const nb::object& parents, const std::string& kind) {
  SegmentBatch memory;
  memory.AddAddresses(self.state()->memory, addresses, sizes);
  return PutSegments(self, keys, memory, parents, kind);
}

nb::list Get(PoolHandle& self, const nb::sequence& keys, const nb::sequence& buffers) {
  SegmentBatch memory;
  memory.AddBuffers(buffers, SegmentBatch::Access::kWrite);
  return GetSegments(self, keys, memory);
}

nb::list GetInto(PoolHandle& self, const nb::sequence& keys, const nb::sequence& addresses, const nb::sequence& sizes) {
  SegmentBatch memory;
  memory.AddAddresses(self.state()->memory, addresses, sizes);
  return GetSegments(self, keys, memory);
}

nb::list Remove(PoolHandle& self, const nb::sequence& keys) {
  const auto pool = self.Open();
  const std::vector<store::ObjectKey> batch = KeysFrom(*self.state(), keys);
  std::vector<store::KeyAnswer> answers(batch.size(), store::KeyAnswer::kUnavailable);
  WithoutLock([&] { return pool->Remove(batch, answers); });
  return ListOf(answers);
}

int64_t Clear(PoolHandle& self, const NamespaceHandle* name_space) {
  const auto pool = self.Open();
  std::optional<store::NamespaceId> id;
  if (name_space != nullptr) {
    if (name_space->owner != self.state()) Throw(InvalidArgument("namespace is of another pool; open it in this one"));
    id = name_space->id;
  }
  int64_t count = 0;
  WithoutLock([&] {
    const absl::StatusOr<int64_t> cleared = pool->Clear(id);
    count = cleared.value_or(0);
    return cleared.status();
  });
  return count;
}

NamespaceHandle OpenNamespace(PoolHandle& self, const std::string& prefix) {
  const auto pool = self.Open();
  store::NamespaceId id;
  WithoutLock([&] {
    const absl::StatusOr<store::NamespaceId> opened = pool->OpenNamespace(prefix);
    id = opened.value_or(store::NamespaceId());
    return opened.status();
  });
  return {self.state(), id, prefix};
}

std::vector<std::string> DifferencesOf(const store::PoolTraits& traits) {
  std::vector<std::string> names;
  for (const store::Difference difference : traits.differences) {
    switch (difference) {
      case store::Difference::kOneLeaseTtl:
        names.emplace_back("one_lease_ttl");
        break;
      case store::Difference::kNoPin:
        names.emplace_back("no_pin");
        break;
      case store::Difference::kNotStoredAnswer:
        names.emplace_back("not_stored_answer");
        break;
      case store::Difference::kNoChecksum:
        names.emplace_back("no_checksum");
        break;
      case store::Difference::kOwnWatermark:
        names.emplace_back("own_watermark");
        break;
    }
  }
  return names;
}

nb::dict Stats(const PoolHandle& self) {
  const auto pool = self.Open();
  store::PoolStats stats;
  {
    nb::gil_scoped_release unlocked;
    stats = pool->Stats();
  }
  return ToDict(stats);
}

void Close(PoolHandle& self) {
  nb::gil_scoped_release unlocked;
  self.state()->Close();
}

void BindAnswers(nb::module_& module) {
  nb::enum_<store::KeyAnswer>(module, "KeyAnswer", "One answer to probe, lease, get and remove.")
      .value("PRESENT", store::KeyAnswer::kPresent,
             "probe: readable; lease: leased; get: copied and verified; remove: it was there and is gone.")
      .value("ABSENT", store::KeyAnswer::kAbsent, "A miss, whatever its cause.")
      .value("SIZE_DIFFERS", store::KeyAnswer::kSizeDiffers,
             "get only: the buffers do not hold exactly the object's size; nothing was copied.")
      .value("UNAVAILABLE", store::KeyAnswer::kUnavailable,
             "The pool did not answer for this key within its deadline.");
  nb::enum_<store::PutAnswer>(module, "PutAnswer", "One answer to put.")
      .value("STORED", store::PutAnswer::kStored, "Complete and visible.")
      .value("EXISTS", store::PutAnswer::kExists, "Present with this size; unchanged.")
      .value("SIZE_DIFFERS", store::PutAnswer::kSizeDiffers, "Present with another size; unchanged.")
      .value("BUSY", store::PutAnswer::kBusy, "Another writer has this key open.")
      .value("WAITING", store::PutAnswer::kWaiting,
             "Complete but invisible until its parent is there, for a bounded time.")
      .value("REFUSED_FULL", store::PutAnswer::kRefusedFull, "No room: all is leased, pinned or being written.")
      .value("REFUSED_INDEX", store::PutAnswer::kRefusedIndex, "No room for another entry (objects_max).")
      .value("REFUSED_WAITING", store::PutAnswer::kRefusedWaiting,
             "The share of the pool for objects without a parent is used up.")
      .value("REFUSED_SIZE", store::PutAnswer::kRefusedSize, "Larger than this pool can hold at all.")
      .value("NOT_STORED", store::PutAnswer::kNotStored, "Not stored; the pool could not tell why.");
}

void BindHandles(nb::module_& module) {
  nb::class_<NamespaceHandle>(module, "Namespace",
                              "A key prefix of one pool, from Pool.open_namespace; the first half of a key. A value.")
      .def_ro("prefix", &NamespaceHandle::prefix)
      .def("__eq__", [](const NamespaceHandle& self,
                        const NamespaceHandle& other) { return self.owner == other.owner && self.id == other.id; })
      .def("__eq__", [](const NamespaceHandle&, nb::handle) { return false; })
      .def("__hash__", [](const NamespaceHandle& self) { return nb::hash(nb::str(self.prefix.c_str())); })
      .def("__repr__", [](const NamespaceHandle& self) { return fmt::format("Namespace('{}')", self.prefix); });
  nb::class_<LeaseHandle>(
      module, "Lease",
      "Objects that stay until the deadline or release(). Ends with the object too, or as a context\n"
      "manager. Thread-safe.")
      .def("release", &LeaseHandle::Release, "Ends the lease now; idempotent. Other holders' leases stay.")
      .def("forget", &LeaseHandle::Forget,
           "Lets the lease run out by its deadline instead of ending it with this object.")
      .def_prop_ro("deadline", &LeaseHandle::DeadlineSeconds,
                   "Seconds as time.monotonic() reads; 0.0 when nothing is held.")
      .def("__len__", &LeaseHandle::size)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](LeaseHandle& self, const nb::args&) { self.Release(); });
}

void BindContract(nb::module_& module) {
  nb::class_<PoolHandle>(
      module, "Pool",
      "Where KV objects live; the base of EmbeddedPool, DaemonPool and MooncakePool.\n\n"
      "A key is a (Namespace, hash) tuple: a namespace of this pool and 16 or 32 bytes. Every call takes a batch and "
      "answers\n"
      "a list with one value a key, in the order of the keys; a miss, a full pool and an expired lease are answers.\n"
      "ValueError names a bad argument and nothing has changed; PoolUnavailable: the pool cannot be reached; Error: it "
      "is\n"
      "closed. Thread-safe; calls run without the interpreter's lock. Close it, or use it as a context manager.")
      .def("open_namespace", &OpenNamespace, "prefix"_a,
           "The Namespace of a key prefix, 1 to 1,024 bytes of text without NUL. ResourceExhausted beyond the pool's "
           "maximum.")
      .def("probe", &Probe, "keys"_a, "Which keys are readable; changes nothing, leases nothing.")
      .def("lease", &AcquireLease, "keys"_a, "ttl"_a,
           "(Lease, answers): each present key stays for `ttl` seconds, above 0 and at most 86,400; never shortens a "
           "lease.")
      .def("put", &Put, "keys"_a, "buffers"_a, nb::kw_only(), "parents"_a.none() = nb::none(), "kind"_a = "other",
           "Stores one object a key. buffers: one contiguous buffer object a key, or a list of them that the object is "
           "the\n"
           "concatenation of. parents: one key or None an object, for closed pools. kind: of the group, for eviction.")
      .def("put_from", &PutFrom, "keys"_a, "addresses"_a, "sizes"_a, nb::kw_only(), "parents"_a.none() = nb::none(),
           "kind"_a = "other",
           "put() from host memory: per key a list of addresses and one of sizes in bytes, inside registered buffers.")
      .def("get", &Get, "keys"_a, "buffers"_a,
           "Copies objects into writable contiguous buffers, or lists of them; their sizes add up to the object's.")
      .def("get_into", &GetInto, "keys"_a, "addresses"_a, "sizes"_a,
           "get() into host memory: per key a list of addresses and one of sizes in bytes, inside registered buffers.")
      .def("remove", &Remove, "keys"_a, "Makes keys absent at once, with their descendants, leased or not.")
      .def("clear", &Clear, "namespace"_a.none() = nb::none(),
           "Removes every object of a namespace, or of the pool; how many were visible.")
      .def(
          "stats", &Stats,
          "A snapshot of the pool's figures by name (docs/reference/python.md). Counters end in _total and never fall.")
      .def(
          "register_buffer",
          [](PoolHandle& self, uint64_t address, uint64_t size) {
            ThrowIfError(self.state()->memory.Register(address, size));
          },
          "address"_a, "size"_a,
          "Lets put_from and get_into use host memory [address, address + size). It must stay mapped until "
          "unregistered.")
      .def(
          "unregister_buffer",
          [](PoolHandle& self, uint64_t address) { ThrowIfError(self.state()->memory.Unregister(address)); },
          "address"_a, "Ends register_buffer, by its address. Not while a call that names the memory runs.")
      .def_prop_ro(
          "name", [](const PoolHandle& self) { return self.Open()->traits().name; }, "The pool's kind, for logs.")
      .def_prop_ro(
          "closed_under_ancestors", [](const PoolHandle& self) { return self.Open()->traits().closed; },
          "Whether a present object implies its ancestors, and a leased one that they stay.")
      .def_prop_ro(
          "differences", [](const PoolHandle& self) { return DifferencesOf(self.Open()->traits()); },
          "The contract's rules that this pool does not keep as written, by name; empty for most.")
      .def("close", &Close, "Ends the pool. Calls under way and leases keep its memory until they end. Idempotent.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](PoolHandle& self, const nb::args&) { Close(self); });
}

}  // namespace

void BindPools(nb::module_& module) {
  BindAnswers(module);
  BindHandles(module);
  BindContract(module);
}

}  // namespace tenure::python
