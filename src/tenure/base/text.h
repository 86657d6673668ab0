// Texts that others have written, before they go into messages, logs and Python. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tenure {

// Whether all of it is well-formed UTF-8.
bool IsUtf8(std::string_view text);

// The text as part of one line: at most `bytes_max` bytes and an ellipsis of three dots, valid UTF-8, with "?" for
// every control character and every byte that is not UTF-8.
std::string OneLine(std::string_view text, size_t bytes_max);

}  // namespace tenure
