// A block hash: the chained digest of a prompt prefix at the hash unit. Names the block and all before it.
//
// A value of 16 (xxh3) or 32 (sha256) bytes. Uniform, so its first bytes serve as a table hash.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::kv {

class BlockHash {
 public:
  static constexpr size_t kSizeMax = 32;

  constexpr BlockHash() = default;  // Size 0: no hash.

  // `bytes` must hold 16 or 32 bytes; the error names `what`.
  static absl::StatusOr<BlockHash> FromBytes(std::string_view what, std::span<const uint8_t> bytes);
  // Lower- or upper-case digits, 32 or 64 of them.
  static absl::StatusOr<BlockHash> FromHex(std::string_view what, std::string_view hex);

  // Precondition: bytes.size() is 16 or 32.
  static BlockHash FromTrusted(std::span<const uint8_t> bytes) {
    BlockHash hash;
    hash.size_ = static_cast<uint8_t>(bytes.size());
    std::memcpy(hash.bytes_.data(), bytes.data(), bytes.size());
    return hash;
  }

  std::span<const uint8_t> bytes() const { return {bytes_.data(), size_}; }
  size_t size() const { return size_; }
  std::string ToHex() const;

  // The first eight bytes in machine order.
  uint64_t Prefix64() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

  friend bool operator==(const BlockHash& a, const BlockHash& b) {
    return a.size_ == b.size_ && std::memcmp(a.bytes_.data(), b.bytes_.data(), kSizeMax) == 0;
  }
  friend std::strong_ordering operator<=>(const BlockHash& a, const BlockHash& b) = default;

 private:
  std::array<uint8_t, kSizeMax> bytes_{};  // Unused bytes are 0.
  uint8_t size_ = 0;
};

}  // namespace tenure::kv
