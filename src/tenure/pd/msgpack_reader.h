// MessagePack from a peer, read in order and without trust.
//
// A count is compared with the bytes that are left before memory is taken for it, so five bytes cannot ask for
// gigabytes: what is decoded takes at most a small multiple of the message. Values of fields that nobody knows are
// skipped, any kind and any depth, without recursion. After the first failure the reader stays failed and hands out
// zeros and empty texts; Finish tells what was wrong and where. The bytes outlive the reader and the views it hands
// out. One thread at a time.
//
// Our own and not msgpack-cxx: that library's visitor takes memory for containers before their contents are seen, and
// its maps accept messages that lack required fields.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tenure::pd {

class MsgpackReader {
 public:
  explicit MsgpackReader(std::string_view message) : message_(message) {}

  bool failed() const { return problem_ != nullptr; }
  size_t left() const { return message_.size() - at_; }
  // `problem` is a literal: a phrase that follows the field's name. The first one stays.
  void Fail(const char* problem);
  // What errors name from here on; a literal.
  void EnterField(std::string_view field) { field_ = field; }

  // InvalidArgument that names `what`, the field, the place and the remedy, when reading failed or bytes are left.
  absl::Status Finish(std::string_view what);

  size_t Map();
  size_t Array(size_t items_max);
  // Any bytes; for the names of fields.
  std::string_view RawText();
  // The form that MessagePack has for bytes, which is not that of texts; at most kBytesMax.
  void ReadBytes(std::string& value);
  // Takes nil and tells whether it was there.
  bool Nil();
  void Skip();

  void Read(std::string& value);  // UTF-8, at most kTextBytesMax bytes.
  void Read(int64_t& value);
  void Read(uint64_t& value);
  void Read(double& value);  // A float, or a whole number.
  template <typename T>
  void Read(std::optional<T>& value) {
    value.reset();
    if (!Nil()) Read(value.emplace());
  }
  template <typename T>
  void Read(std::vector<T>& items) {
    items.clear();
    const size_t count = Array(kItemsMax);
    items.reserve(count);
    for (size_t i = 0; i < count && !failed(); ++i) Read(items.emplace_back());
  }

  // Reads a whole map whose keys are texts: calls `read(i)` for the field names[i] and skips the others. A field that
  // comes twice, or is absent although its place is below `required`, is a failure.
  template <size_t kCount, typename ReadField>
  void Fields(const std::array<std::string_view, kCount>& names, size_t required, ReadField read) {
    static_assert(kCount <= 32);
    uint32_t seen = 0;
    size_t expected = 0;  // Senders keep the order of the declaration.
    for (size_t left = Map(); left > 0 && !failed(); --left) {
      const std::string_view name = RawText();
      size_t field = expected;
      while (field < kCount && names[field] != name) ++field;
      if (field == kCount) {
        for (field = 0; field < expected && names[field] != name;) ++field;
        if (field == expected) field = kCount;
      }
      if (field == kCount) {
        Skip();
        continue;
      }
      EnterField(names[field]);
      if ((seen >> field & 1) != 0) Fail("is given twice");
      seen |= uint32_t{1} << field;
      expected = field + 1 < kCount ? field + 1 : 0;
      if (!failed()) read(field);
    }
    for (size_t field = 0; field < required && !failed(); ++field) {
      EnterField(names[field]);
      if ((seen >> field & 1) == 0) Fail("is missing");
    }
  }

  // Longer texts, bytes and lists are refused, whatever the message's size.
  static constexpr size_t kTextBytesMax = 4096;
  static constexpr size_t kBytesMax = 16'384;
  static constexpr size_t kItemsMax = 1 << 20;

 private:
  uint64_t Byte();
  uint64_t BigEndian(size_t bytes);
  std::string_view Take(size_t bytes);
  // A count of items that take at least `bytes_each` bytes each.
  size_t Count(uint64_t count, size_t bytes_each);
  bool SkipInto(uint64_t& values);

  std::string_view message_;
  size_t at_ = 0;
  std::string_view field_ = "the message";
  const char* problem_ = nullptr;
};

}  // namespace tenure::pd
