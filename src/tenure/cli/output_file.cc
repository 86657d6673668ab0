#include "tenure/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::cli {
namespace {

absl::Status Unwritable(const std::string& path, int error) {
  return BadData("{}: cannot be written ({}); give another file", path, std::strerror(error));
}

// The place to rename over: a symbolic link stays one.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(path, error);
  return error ? path : canonical.string();
}

// As a file that `open` would have created.
void ApplyUmask(int descriptor) {
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(descriptor, static_cast<mode_t>(0666) & ~mask);
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  if (path.empty()) return InvalidArgument("the output file's name is empty: give a path");
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return Unwritable(path, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return Unwritable(path, errno);
    return OutputFile(path, "", descriptor);
  }
  if (exists && access(path.c_str(), W_OK) != 0) return Unwritable(path, errno);
  std::string resolved = Resolved(path);
  std::string temporary = resolved + ".XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return Unwritable(path, errno);
  ApplyUmask(descriptor);
  return OutputFile(std::move(resolved), std::move(temporary), descriptor);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, "")),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status OutputFile::Append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      return Unwritable(path_, errno);
    }
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  // Some file systems say only here that there was no room.
  if (close(std::exchange(descriptor_, -1)) != 0) return Unwritable(path_, errno);
  if (temporary_.empty()) return absl::OkStatus();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Unwritable(path_, errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace tenure::cli
