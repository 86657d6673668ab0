// A file that appears whole or not at all: written beside its place, then renamed over it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::cli {

class OutputFile {
 public:
  // Refuses at once what could not be written later: a missing folder, a directory, no permission. The error names
  // `path`.
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  // Without Commit nothing is left behind.
  ~OutputFile();

  absl::Status Append(std::string_view text);
  // The file is there now; last call. What already existed and is no regular file (a pipe, a device) is written in
  // place instead.
  absl::Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;  // Empty: written in place, or already renamed.
  int descriptor_ = -1;
};

}  // namespace tenure::cli
