// Options that pools made in this process have in common, as Python gives them. Each throws ValueError with a text that
// names the option.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "tenure/store/embedded_pool.h"

namespace tenure::python {

using SizeArgument = std::variant<int64_t, std::string>;

// Bytes, given as a number or as people type them.
int64_t BytesFrom(std::string_view what, const SizeArgument& size);
store::PoolMode ModeFrom(const std::string& mode);
// A pool that the machine cannot hold would end the process while its pages are taken.
void CheckMachine(int64_t capacity);

}  // namespace tenure::python
