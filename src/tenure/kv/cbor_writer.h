// Writes the few kinds of canonical CBOR (RFC 8949 §4.2: shortest heads, definite lengths) that block hashes are taken
// of.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenure::kv {

class CborWriter {
 public:
  void Integer(int64_t value) {
    // A negative integer is stored as -1 - value.
    Head(value < 0 ? 1 : 0, static_cast<uint64_t>(value < 0 ? -1 - value : value));
  }
  void Bytes(std::span<const uint8_t> bytes) {
    Head(2, bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void Text(std::string_view utf8) {
    Head(3, utf8.size());
    bytes_.insert(bytes_.end(), utf8.begin(), utf8.end());
  }
  // The next `items` values are its elements.
  void Array(size_t items) { Head(4, items); }
  void Null() { bytes_.push_back(0xf6); }

  std::span<const uint8_t> bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  void Head(uint8_t major, uint64_t argument) {
    const int extra_bytes = argument < 24            ? 0
                            : argument <= 0xff       ? 1
                            : argument <= 0xffff     ? 2
                            : argument <= 0xffffffff ? 4
                                                     : 8;
    const int info = extra_bytes == 0   ? static_cast<int>(argument)
                     : extra_bytes == 1 ? 24
                     : extra_bytes == 2 ? 25
                     : extra_bytes == 4 ? 26
                                        : 27;
    bytes_.push_back(static_cast<uint8_t>(major << 5 | info));
    for (int i = extra_bytes - 1; i >= 0; --i) bytes_.push_back(static_cast<uint8_t>(argument >> (8 * i)));
  }

  std::vector<uint8_t> bytes_;
};

}  // namespace tenure::kv
