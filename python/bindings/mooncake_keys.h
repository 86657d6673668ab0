// A batch of keys on its way to Mooncake, whose texts are written straight into Python's str objects.
//
// A value; a call that may outlast its caller owns one. A lookup sends thousands of keys, and a text made elsewhere
// first costs as much as the master's half of the answer (0.1 of 0.5 us a key).
#pragma once

#include <Python.h>

#include <compare>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenure/kv/block_hash.h"

namespace tenure::python {

// The text of a namespace.
struct MooncakePrefix {
  explicit MooncakePrefix(std::string text);

  std::string text;
  bool is_ascii;
};

// Prefixes stay where they are while the table grows.
using MooncakePrefixes = std::deque<MooncakePrefix>;

struct MooncakeKey {
  const MooncakePrefix* prefix = nullptr;
  kv::BlockHash hash;

  friend auto operator<=>(const MooncakeKey&, const MooncakeKey&) = default;

  // The key as a new str, or null with Python's error set (a prefix that is no UTF-8). With the interpreter's lock.
  PyObject* ToPython() const;
};

class MooncakeKeys {
 public:
  // A part of another batch, which must outlive it.
  MooncakeKeys() = default;
  // `prefixes` is where the keys' prefixes live.
  explicit MooncakeKeys(std::shared_ptr<const MooncakePrefixes> prefixes) : prefixes_(std::move(prefixes)) {}

  void Reserve(size_t keys) { keys_.reserve(keys); }
  void Append(const MooncakeKey& key) { keys_.push_back(key); }

  size_t size() const { return keys_.size(); }
  const MooncakeKey& operator[](size_t i) const { return keys_[i]; }

  // A new list of str, or null with Python's error set. With the interpreter's lock.
  PyObject* ToPython() const;

 private:
  std::shared_ptr<const MooncakePrefixes> prefixes_;
  std::vector<MooncakeKey> keys_;
};

}  // namespace tenure::python
