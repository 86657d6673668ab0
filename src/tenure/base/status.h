// Errors as values: absl::Status and absl::StatusOr, made with fmt format strings.
//
// A message names the argument, its value and the remedy. This header holds the only helpers around Abseil's status
// types; our own headers use std::string_view (Debian's absl::string_view is a type of its own).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure {

template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}

// For data that was read (a file, a message) and is not what its format says.
template <typename... Args>
absl::Status BadData(fmt::format_string<Args...> format, Args&&... args) {
  return absl::DataLossError(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
absl::Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return absl::ResourceExhaustedError(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
absl::Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return absl::FailedPreconditionError(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
absl::Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnavailableError(fmt::format(format, std::forward<Args>(args)...));
}

// The message of a status as a std type.
inline std::string_view Message(const absl::Status& status) {
  return std::string_view(status.message().data(), status.message().size());
}

}  // namespace tenure

#define TENURE_RETURN_IF_ERROR(expression)                    \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define TENURE_STATUS_CONCAT_(a, b) a##b
#define TENURE_STATUS_CONCAT(a, b) TENURE_STATUS_CONCAT_(a, b)
#define TENURE_ASSIGN_OR_RETURN(declaration, expression) \
  TENURE_ASSIGN_OR_RETURN_(TENURE_STATUS_CONCAT(status_or_, __LINE__), declaration, expression)
#define TENURE_ASSIGN_OR_RETURN_(name, declaration, expression) \
  auto name = (expression);                                     \
  if (!name.ok()) return name.status();                         \
  declaration = std::move(name).value()
