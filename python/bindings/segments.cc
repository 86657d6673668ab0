#include "bindings/segments.h"

#include <fmt/format.h>

#include "bindings/errors.h"
#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {
namespace {

std::vector<uint64_t> IntegersFrom(std::string_view what, size_t object, nb::handle sequence) {
  std::vector<uint64_t> integers;
  if (!PySequence_Check(sequence.ptr())) {
    Throw(InvalidArgument("{}[{}] is no sequence; give one list of integers an object", what, object));
  }
  for (const nb::handle item : nb::borrow<nb::sequence>(sequence)) {
    uint64_t value = 0;
    if (!nb::try_cast(item, value)) {
      Throw(InvalidArgument("{}[{}][{}] is no integer from 0 to 2^64 - 1", what, object, integers.size()));
    }
    integers.push_back(value);
  }
  return integers;
}

}  // namespace

SegmentBatch::~SegmentBatch() {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
}

void SegmentBatch::AddBuffer(size_t object, nb::handle buffer, Access access) {
  Py_buffer view;
  const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
  if (PyObject_GetBuffer(buffer.ptr(), &view, flags) != 0) throw nb::python_error();
  views_.push_back(view);
  if (view.len == 0) Throw(InvalidArgument("buffers[{}] has an empty buffer; an object has at least 1 byte", object));
  ranges_.push_back({static_cast<std::byte*>(view.buf), static_cast<size_t>(view.len)});
}

void SegmentBatch::AddBuffers(const nb::sequence& objects, Access access) {
  for (const nb::handle object : objects) {
    const size_t index = ends_.size();
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
      AddBuffer(index, object, access);
    } else if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
      for (const nb::handle buffer : nb::borrow<nb::sequence>(object)) AddBuffer(index, buffer, access);
    } else {
      PyErr_SetString(PyExc_TypeError,
                      fmt::format("buffers[{}] is no buffer, nor a list or tuple of them", index).c_str());
      throw nb::python_error();
    }
    if (ranges_.size() == (ends_.empty() ? 0 : ends_.back())) {
      Throw(InvalidArgument("buffers[{}] is empty; an object has at least 1 byte", index));
    }
    ends_.push_back(ranges_.size());
  }
}

void SegmentBatch::AddAddresses(const MemoryRegistry& memory, const nb::sequence& addresses,
                                const nb::sequence& sizes) {
  if (nb::len(addresses) != nb::len(sizes)) {
    Throw(InvalidArgument("addresses has {} entries and sizes {}; give one of each an object", nb::len(addresses),
                          nb::len(sizes)));
  }
  for (size_t object = 0; object < nb::len(addresses); ++object) {
    const nb::object object_addresses = addresses[object];
    const nb::object object_sizes = sizes[object];
    const std::vector<uint64_t> first = IntegersFrom("addresses", object, object_addresses);
    const std::vector<uint64_t> length = IntegersFrom("sizes", object, object_sizes);
    if (first.size() != length.size() || first.empty()) {
      Throw(InvalidArgument("addresses[{}] has {} entries and sizes[{}] {}; give as many of each, at least 1", object,
                            first.size(), object, length.size()));
    }
    for (size_t i = 0; i < first.size(); ++i) {
      ThrowIfError(memory.Check(fmt::format("addresses[{}][{}]", object, i), first[i], length[i]));
      ranges_.push_back({reinterpret_cast<std::byte*>(first[i]), length[i]});
    }
    ends_.push_back(ranges_.size());
  }
}

}  // namespace tenure::python
