// An open file descriptor with one owner, closed by its destructor.
#pragma once

#include <unistd.h>

#include <utility>

namespace tenure::daemon {

class FileDescriptor {
 public:
  FileDescriptor() = default;  // Nothing open.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    FileDescriptor moved(std::move(other));
    std::swap(fd_, moved.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace tenure::daemon
