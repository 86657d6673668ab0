// The memory of a batch's objects as Python names it: buffer objects, or addresses and sizes inside registered memory.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <span>
#include <vector>

#include "bindings/memory_registry.h"

namespace tenure::python {

// The segments of a batch, object by object. Buffer objects are held until it is destroyed, with the interpreter's lock
// held; they cannot be resized meanwhile.
class SegmentBatch {
 public:
  enum class Access { kRead, kWrite };

  SegmentBatch() = default;
  ~SegmentBatch();
  SegmentBatch(const SegmentBatch&) = delete;
  SegmentBatch& operator=(const SegmentBatch&) = delete;

  // One entry an object: a contiguous buffer, or a sequence of them. ValueError for an empty object or an empty buffer,
  // TypeError for what is no buffer, BufferError for one that is not writable or contiguous.
  void AddBuffers(const nanobind::sequence& objects, Access access);
  // One sequence of addresses and one of sizes an object. ValueError unless all lie in registered memory.
  void AddAddresses(const MemoryRegistry& memory, const nanobind::sequence& addresses, const nanobind::sequence& sizes);

  size_t size() const { return ends_.size(); }
  // Object i as Segment or ConstSegment; valid until the next Add.
  template <typename SegmentType>
  std::vector<std::vector<SegmentType>> As() const {
    std::vector<std::vector<SegmentType>> objects;
    size_t begin = 0;
    for (const size_t end : ends_) {
      auto& object = objects.emplace_back();
      for (; begin < end; ++begin) object.push_back({ranges_[begin].data, ranges_[begin].size});
    }
    return objects;
  }

 private:
  struct Range {
    std::byte* data;
    size_t size;
  };
  void AddBuffer(size_t object, nanobind::handle buffer, Access access);

  std::vector<Range> ranges_;
  std::vector<size_t> ends_;  // Where object i's ranges end.
  std::vector<Py_buffer> views_;
};

}  // namespace tenure::python
