// Log lines on standard error, one place to format and to filter them. Thread-safe.
//
// Only log.cc includes spdlog. A line says what happened, to what, and what it means for the reader; nothing is logged
// on a path that runs per key. TENURE_LOG_LEVEL (trace, debug, info, warn, error, off; default info) filters.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tenure {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tenure
