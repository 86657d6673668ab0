#include "tenure/sim/byte_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

bool IsSet(const std::atomic<bool>* flag) { return flag != nullptr && flag->load(std::memory_order_relaxed); }

absl::Status Unreadable(const std::string& path, int error) {
  return BadData("{}: {}; give a readable file", path, std::strerror(error));
}

class FileSource final : public ByteSource {
 public:
  FileSource(int descriptor, std::string path, std::optional<Bytes> size, const std::atomic<bool>* interrupted)
      : descriptor_(descriptor), path_(std::move(path)), size_(size), interrupted_(interrupted) {}
  ~FileSource() override { close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  absl::StatusOr<size_t> Read(std::span<char> buffer) override {
    while (!IsSet(interrupted_)) {
      if (!size_ && !WaitForInput()) continue;
      const ssize_t count = read(descriptor_, buffer.data(), buffer.size());
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR) return Unreadable(path_, errno);
    }
    return absl::CancelledError("interrupted");
  }
  std::optional<Bytes> size() const override { return size_; }

 private:
  // A signal may come between the look at `interrupted` and a read that then waits for ever; a bounded wait comes back
  // to look again.
  bool WaitForInput() const {
    constexpr int kWaitMilliseconds = 100;
    pollfd descriptor{descriptor_, POLLIN, 0};
    return poll(&descriptor, 1, kWaitMilliseconds) > 0;
  }

  int descriptor_;
  std::string path_;
  std::optional<Bytes> size_;  // Of a regular file.
  const std::atomic<bool>* interrupted_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}

  absl::StatusOr<size_t> Read(std::span<char> buffer) override {
    const size_t count = std::min(buffer.size(), bytes_.size() - position_);
    std::copy_n(bytes_.data() + position_, count, buffer.data());
    position_ += count;
    return count;
  }
  std::optional<Bytes> size() const override { return Bytes(static_cast<int64_t>(bytes_.size())); }

 private:
  std::string bytes_;
  size_t position_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path, const std::atomic<bool>* interrupted) {
  int descriptor = -1;
  while ((descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC)) < 0) {
    if (errno != EINTR) return Unreadable(path, errno);
    if (IsSet(interrupted)) return absl::CancelledError("interrupted");
  }
  struct stat info {};
  if (fstat(descriptor, &info) != 0) {
    const int error = errno;
    close(descriptor);
    return Unreadable(path, error);
  }
  std::optional<Bytes> size;
  if (S_ISREG(info.st_mode)) size = Bytes(info.st_size);
  auto source = std::make_unique<FileSource>(descriptor, path, size, interrupted);
  if (S_ISDIR(info.st_mode)) return Unreadable(path, EISDIR);
  return source;
}

absl::Status CheckReadable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Unreadable(path, errno);
  if (S_ISDIR(info.st_mode)) return Unreadable(path, EISDIR);
  if (access(path.c_str(), R_OK) != 0) return Unreadable(path, errno);
  return absl::OkStatus();
}

std::unique_ptr<ByteSource> MakeMemorySource(std::string bytes) {
  return std::make_unique<MemorySource>(std::move(bytes));
}

}  // namespace tenure::sim
