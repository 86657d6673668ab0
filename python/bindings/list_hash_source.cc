#include "bindings/list_hash_source.h"

#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {

ListHashSource::ListHashSource(const nb::list& hashes) : list_(hashes.ptr()), size_(PyList_GET_SIZE(hashes.ptr())) {}

absl::Status ListHashSource::Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const {
  nb::gil_scoped_acquire locked;
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
