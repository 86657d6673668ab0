#include "tenure/cli/serve_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "tenure/base/status.h"

namespace tenure::cli {
namespace {

constexpr std::uintmax_t kFileBytesMax = 1 << 20;

struct TextKey {
  std::string_view name;
  std::string ServeArguments::*field;
};
constexpr std::array<TextKey, 8> kTextKeys = {{{"socket", &ServeArguments::socket},
                                               {"memory", &ServeArguments::memory},
                                               {"mode", &ServeArguments::mode},
                                               {"group", &ServeArguments::group},
                                               {"metrics", &ServeArguments::metrics},
                                               {"drain_timeout", &ServeArguments::drain_timeout},
                                               {"clients_max", &ServeArguments::clients_max},
                                               {"held_bytes_max", &ServeArguments::held_bytes_max}}};
constexpr std::string_view kHugePagesKey = "huge_pages";

absl::Status Bad(const std::string& path, const toml::source_region& where, std::string_view what) {
  return InvalidArgument("--config {}: line {}: {}", path, where.begin.line, what);
}

std::string KnownKeys() {
  std::string keys;
  for (const TextKey& key : kTextKeys) keys += std::string(key.name) + ", ";
  return keys + std::string(kHugePagesKey);
}

// One key of the file into `arguments`, unless the command line has it.
absl::Status TakeKey(const std::string& path, std::string_view name, const toml::node& value,
                     ServeArguments& arguments) {
  if (name == kHugePagesKey) {
    if (!value.is_boolean()) return Bad(path, value.source(), "huge_pages: give true or false");
    arguments.huge_pages = arguments.huge_pages || value.as_boolean()->get();
    return absl::OkStatus();
  }
  const auto* const key =
      std::find_if(kTextKeys.begin(), kTextKeys.end(), [name](const TextKey& known) { return known.name == name; });
  if (key == kTextKeys.end()) {
    return Bad(path, value.source(), fmt::format("there is no key \"{}\"; the keys are {}", name, KnownKeys()));
  }
  std::string text;
  if (value.is_string()) {
    text = value.as_string()->get();
  } else if (value.is_integer()) {
    text = fmt::format("{}", value.as_integer()->get());
  } else {
    return Bad(path, value.source(), fmt::format("{}: give a text in quotes, as after --{}", name, name));
  }
  if ((arguments.*key->field).empty()) arguments.*key->field = text;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return InvalidArgument("--config {}: {}; give a TOML file", path, error.message());
  if (size > kFileBytesMax) return InvalidArgument("--config {}: {} bytes; the most is {}", path, size, kFileBytesMax);
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return InvalidArgument("--config {}: it cannot be read; check its permissions", path);
  return text;
}

}  // namespace

absl::StatusOr<ServeArguments> WithConfigFile(const ServeArguments& arguments) {
  ServeArguments merged = arguments;
  if (arguments.config.empty()) return merged;
  TENURE_ASSIGN_OR_RETURN(const std::string text, ReadFile(arguments.config));
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Bad(arguments.config, error.source(), fmt::format("not TOML: {}", error.description()));
  }
  for (const auto& [key, value] : table) {
    TENURE_RETURN_IF_ERROR(TakeKey(arguments.config, key.str(), value, merged));
  }
  return merged;
}

}  // namespace tenure::cli
