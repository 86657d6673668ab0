// MessagePack, the part that the P/D messages use, written as Python's msgspec writes it: always the shortest form.
//
// Appends to a string that the caller owns; counts come before what they count. One thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenure::pd {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void Map(size_t pairs) { Head(pairs, 15, 0x80, 0, 0xDE); }
  void Array(size_t items) { Head(items, 15, 0x90, 0, 0xDC); }
  void Text(std::string_view utf8) {
    Head(utf8.size(), 31, 0xA0, 0xD9, 0xDA);
    out_.append(utf8);
  }
  void Bytes(std::string_view bytes) {
    const size_t size = bytes.size();
    size <= UINT8_MAX ? Tagged(0xC4, size, 1) : size <= UINT16_MAX ? Tagged(0xC5, size, 2) : Tagged(0xC6, size, 4);
    out_.append(bytes);
  }
  void Unsigned(uint64_t value) {
    if (value <= 0x7F) return Byte(value);
    if (value <= UINT8_MAX) return Tagged(0xCC, value, 1);
    if (value <= UINT16_MAX) return Tagged(0xCD, value, 2);
    if (value <= UINT32_MAX) return Tagged(0xCE, value, 4);
    Tagged(0xCF, value, 8);
  }
  void Integer(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    if (value >= 0) return Unsigned(bits);
    if (value >= -32) return Byte(bits);
    if (value >= INT8_MIN) return Tagged(0xD0, bits, 1);
    if (value >= INT16_MIN) return Tagged(0xD1, bits, 2);
    if (value >= INT32_MIN) return Tagged(0xD2, bits, 4);
    Tagged(0xD3, bits, 8);
  }
  void Number(double value) { Tagged(0xCB, std::bit_cast<uint64_t>(value), 8); }

  void Value(const std::string& value) { Text(value); }
  void Value(int64_t value) { Integer(value); }
  void Value(uint64_t value) { Unsigned(value); }
  void Value(double value) { Number(value); }
  template <typename T>
  void Value(const std::vector<T>& items) {
    Array(items.size());
    for (const T& item : items) Value(item);
  }

 private:
  void Byte(uint64_t value) { out_.push_back(static_cast<char>(value & 0xFF)); }
  // The low `bytes` bytes of `bits`, most significant first, after `tag`.
  void Tagged(uint64_t tag, uint64_t bits, int bytes) {
    Byte(tag);
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) Byte(bits >> shift);
  }
  // `tag8` 0: there is no form with one byte of length. The form with four has the tag after `tag16`.
  void Head(uint64_t size, uint64_t short_max, uint64_t short_tag, uint64_t tag8, uint64_t tag16) {
    if (size <= short_max) return Byte(short_tag | size);
    if (size <= UINT8_MAX && tag8 != 0) return Tagged(tag8, size, 1);
    if (size <= UINT16_MAX) return Tagged(tag16, size, 2);
    Tagged(tag16 + 1, size, 4);
  }

  std::string& out_;
};

}  // namespace tenure::pd
