// What the addresses of transports have in common: bytes framed with a version and a checksum, so that only those that
// arrived whole are read, and numbers as text in them.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenure::transfer {

// `magic` names the transport's format and its version.
std::string FrameBytes(std::string_view magic, std::string_view bytes);
// InvalidArgument for what FrameBytes has not written with that magic; `what` and the transport's `kind` name it.
absl::StatusOr<std::string> UnframeBytes(std::string_view magic, std::string_view kind, std::string_view what,
                                         std::string_view frame);

// Takes a decimal number and the blank behind it off the front of `text`.
template <typename Number>
bool TakeNumber(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto size = static_cast<size_t>(end - text.data());
  if (error != std::errc() || size >= text.size() || text[size] != ' ') return false;
  text.remove_prefix(size + 1);
  return true;
}

}  // namespace tenure::transfer
