#include "bindings/list_hash_source.h"

#include "bindings/lock_guard.h"
#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {

namespace {

bool IsInterpreterGoing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

ListHashSource::ListHashSource(const nb::list& hashes) : list_(hashes.ptr()), size_(PyList_GET_SIZE(hashes.ptr())) {
  Py_INCREF(list_);
}

ListHashSource::~ListHashSource() {
  if (IsInterpreterGoing()) return;
  const LockHeld locked;
  Py_DECREF(list_);
}

absl::Status ListHashSource::Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const {
  if (IsInterpreterGoing()) return Unavailable("the interpreter is going away");
  const LockHeld locked;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i].value();
    if (index >= PyList_GET_SIZE(list_)) {
      return FailedPrecondition("the list of hashes shrank to {} during a lookup of {}", PyList_GET_SIZE(list_), size_);
    }
    PyObject* item = PyList_GET_ITEM(list_, index);
    if (!PyBytes_Check(item)) {
      return InvalidArgument("hashes[{}] is of type {}; use bytes", index, Py_TYPE(item)->tp_name);
    }
    const auto* data = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(item));
    const auto size = static_cast<size_t>(PyBytes_GET_SIZE(item));
    TENURE_ASSIGN_OR_RETURN(hashes[i], kv::BlockHash::FromBytes("a hash of the list", {data, size}));
  }
  return absl::OkStatus();
}

}  // namespace tenure::python
