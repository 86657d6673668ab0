#include "tenure/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace tenure {
namespace {

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger = std::make_shared<spdlog::logger>("tenure", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ tenure: %v");
  if (const char* level = std::getenv("TENURE_LOG_LEVEL")) logger->set_level(spdlog::level::from_str(level));
  return logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void LogLine(LogLevel level, std::string_view line) {
  // Never destroyed: a thread may still log while the process leaves main.
  static const auto& logger = *new std::shared_ptr<spdlog::logger>(MakeLogger());
  logger->log(ToSpdlog(level), "{}", line);
}

}  // namespace tenure
