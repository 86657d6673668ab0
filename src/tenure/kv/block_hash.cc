#include "tenure/kv/block_hash.h"

#include "tenure/base/status.h"
#include "tenure/kv/hex.h"

namespace tenure::kv {
namespace {

constexpr bool IsHashSize(size_t size) { return size == 16 || size == BlockHash::kSizeMax; }

// The value of a hexadecimal digit, or -1.
int DigitOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<BlockHash> BlockHash::FromBytes(std::string_view what, std::span<const uint8_t> bytes) {
  if (!IsHashSize(bytes.size())) {
    return InvalidArgument("{} has {} bytes; a block hash has 16 (xxh3) or 32 (sha256)", what, bytes.size());
  }
  return FromTrusted(bytes);
}

absl::StatusOr<BlockHash> BlockHash::FromHex(std::string_view what, std::string_view hex) {
  if (hex.size() % 2 != 0 || !IsHashSize(hex.size() / 2)) {
    return InvalidArgument("{} has {} characters; a block hash has 32 or 64 hexadecimal digits", what, hex.size());
  }
  std::array<uint8_t, kSizeMax> bytes{};
  for (size_t i = 0; i < hex.size(); ++i) {
    const int digit = DigitOf(hex[i]);
    if (digit < 0) return InvalidArgument("{} has no hexadecimal digit at character {}; use 0-9, a-f", what, i);
    bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] << 4 | digit);
  }
  return FromTrusted(std::span(bytes).first(hex.size() / 2));
}

std::string BlockHash::ToHex() const {
  std::string hex(size_ * 2u, '\0');
  WriteHex(bytes(), hex.data());
  return hex;
}

}  // namespace tenure::kv
