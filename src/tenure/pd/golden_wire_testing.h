// The messages of golden_wire.inc, which msgspec wrote, by name; the process ends for a name that is not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenure::pd {

std::string GoldenMessage(std::string_view name);
std::vector<std::string> AllGoldenMessages();

}  // namespace tenure::pd
