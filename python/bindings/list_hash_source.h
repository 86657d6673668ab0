// The block hashes of a prompt in the engine's own list: read where it lies, only at the positions that are asked for.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

#include "tenure/connector/hash_source.h"

namespace tenure::python {

// Made with the interpreter's lock held; keeps the list alive. Read and the end take the lock, for one batch or for the
// list's release, in any thread; while the interpreter goes away Read fails and the list is left to it. The list may
// grow or shrink between reads: positions past the length at construction are never read, and one that is gone, or
// holds what is no hash, is an error.
class ListHashSource final : public connector::HashSource {
 public:
  explicit ListHashSource(const nanobind::list& hashes);
  ~ListHashSource() override;
  ListHashSource(const ListHashSource&) = delete;
  ListHashSource& operator=(const ListHashSource&) = delete;

  int64_t size() const override { return size_; }
  absl::Status Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const override;

 private:
  PyObject* list_;
  int64_t size_;
};

}  // namespace tenure::python
