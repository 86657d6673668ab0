// What is known of a key: present, absent, or not asked yet.
#pragma once

#include <cstdint>

namespace tenure::kv {

enum class Presence : uint8_t { kUnknown, kPresent, kAbsent };

}  // namespace tenure::kv
