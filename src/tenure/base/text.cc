#include "tenure/base/text.h"

#include <cstdint>

namespace tenure {
namespace {

// The bytes of the character that begins at `at`; 0 when none does.
size_t CharacterBytes(std::string_view text, size_t at) {
  const auto byte = [text](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || length > text.size() - at) return 0;
  uint32_t code = lead & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(at + k) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(at + k) & 0x3F);
  }
  // Overlong forms, halves of surrogate pairs, past the last code point.
  if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10FFFF))) return 0;
  return code >= 0xD800 && code <= 0xDFFF ? 0 : length;
}

// C0, DEL, C1 and the two line ends of Unicode.
bool IsControl(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return (first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0) || character == "\u2028" || character == "\u2029";
}

}  // namespace

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterBytes(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string OneLine(std::string_view text, size_t bytes_max) {
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterBytes(text, at);
    const std::string_view character = text.substr(at, length == 0 ? 1 : length);
    const std::string_view shown = length == 0 || IsControl(character) ? "?" : character;
    if (line.size() + shown.size() > bytes_max) return line + "...";
    line += shown;
    at += character.size();
  }
  return line;
}

}  // namespace tenure
