// How the fields of a message become bytes and come back: little-endian, no padding, nothing implied.
//
// A message describes its fields once, in a static Fields(self, archive), and both archives walk that. The reader
// checks every count against its maximum and against the bytes that are left before memory is taken; after the first
// failure it stays failed and hands out zeros. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tenure/base/units.h"
#include "tenure/kv/object_key.h"

namespace tenure::daemon {

class WireWriter {
 public:
  explicit WireWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void Number(T value) {
    if constexpr (std::is_enum_v<T>) {
      Number(static_cast<std::underlying_type_t<T>>(value));
    } else {
      static_assert(std::is_integral_v<T>);
      std::byte bytes[sizeof(T)];
      auto rest = static_cast<std::make_unsigned_t<T>>(value);
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(rest & 0xFF);
        if constexpr (sizeof(T) > 1) rest = static_cast<std::make_unsigned_t<T>>(rest >> 8);
      }
      out_.insert(out_.end(), bytes, bytes + sizeof bytes);
    }
  }
  template <typename Tag>
  void Number(Quantity<Tag> value) {
    Number(value.value());
  }

  void Text(const std::string& text, size_t /*bytes_max*/) {
    Number(static_cast<uint16_t>(text.size()));
    Raw(std::as_bytes(std::span(text)));
  }
  void Hash(const kv::BlockHash& hash) {
    Number(static_cast<uint8_t>(hash.size()));
    Raw(std::as_bytes(hash.bytes()));
  }
  void Key(const kv::ObjectKey& key) {
    Number(key.name_space.value());
    Hash(key.hash);
  }
  // `each(archive, item)` writes one item.
  template <typename T, typename Each>
  void List(const std::vector<T>& items, size_t /*items_max*/, size_t /*item_bytes_min*/, Each each) {
    Number(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(*this, item);
  }

 private:
  void Raw(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

  std::vector<std::byte>& out_;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool failed() const { return failed_; }
  // Whether everything was read and nothing is left.
  bool Complete() const { return !failed_ && rest_.empty(); }

  template <typename T>
  void Number(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number = 0;
      Number(number);
      value = static_cast<T>(number);
    } else {
      static_assert(std::is_integral_v<T>);
      const std::span<const std::byte> bytes = Take(sizeof(T));
      uint64_t number = 0;
      for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | std::to_integer<uint64_t>(bytes[i]);
      value = static_cast<T>(number);
    }
  }
  template <typename Tag>
  void Number(Quantity<Tag>& value) {
    int64_t number = 0;
    Number(number);
    value = Quantity<Tag>(number);
  }

  void Text(std::string& text, size_t bytes_max) {
    uint16_t size = 0;
    Number(size);
    if (size > bytes_max) failed_ = true;
    const std::span<const std::byte> bytes = Take(size);
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void Hash(kv::BlockHash& hash) {
    uint8_t size = 0;
    Number(size);
    if (size != 16 && size != 32) failed_ = true;
    const std::span<const std::byte> bytes = Take(size);
    if (failed_) return;
    hash = kv::BlockHash::FromTrusted({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  void Key(kv::ObjectKey& key) {
    uint32_t name_space = 0;
    Number(name_space);
    Hash(key.hash);
    if (!failed_) key.name_space = kv::NamespaceId(name_space);
  }
  // Each item takes at least `item_bytes_min` bytes, which is at least 1.
  template <typename T, typename Each>
  void List(std::vector<T>& items, size_t items_max, size_t item_bytes_min, Each each) {
    uint32_t count = 0;
    Number(count);
    if (count > items_max || count > rest_.size() / item_bytes_min) failed_ = true;
    items.clear();
    if (failed_) return;
    items.resize(count);
    for (T& item : items) each(*this, item);
  }

  // Marks the message as malformed: a value is out of its range.
  void Require(bool condition) { failed_ = failed_ || !condition; }

 private:
  std::span<const std::byte> Take(size_t bytes) {
    if (failed_ || bytes > rest_.size()) {
      failed_ = true;
      return {};
    }
    const std::span<const std::byte> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace tenure::daemon
