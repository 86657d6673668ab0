// The pool's memory: one anonymous file that the daemon fills and its clients map. An owner on each side; thread-safe
// once made.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/daemon/file_descriptor.h"

namespace tenure::daemon {

// A mapping of the file, given back by the destructor. A forked child does not inherit it.
class SharedMapping {
 public:
  SharedMapping() = default;
  static absl::StatusOr<SharedMapping> Map(int fd, size_t bytes);
  SharedMapping(SharedMapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    SharedMapping moved(std::move(other));
    std::swap(bytes_, moved.bytes_);
    return *this;
  }
  ~SharedMapping();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

class SharedMemory {
 public:
  struct Options {
    Bytes size;               // Whole pages of the kind chosen.
    bool huge_pages = false;  // From the machine's reserve of huge pages (vm.nr_hugepages), instead of ordinary ones.
  };

  // Takes every page, so that lack of memory is an error here and not a signal later. Sealed: nobody who has the
  // descriptor can make the file shorter or longer, which would kill who maps it. Not mapped: the daemon itself never
  // touches an object.
  static absl::StatusOr<SharedMemory> Create(const Options& options);
  SharedMemory(SharedMemory&&) noexcept = default;
  SharedMemory& operator=(SharedMemory&&) noexcept = default;

  int fd() const { return fd_.get(); }
  Bytes size() const { return size_; }
  // Gives the pages back to the machine although clients may still map them: they read zeros, which no digest accepts.
  void GiveBackPages();

 private:
  SharedMemory(FileDescriptor fd, Bytes size) : fd_(std::move(fd)), size_(size) {}

  FileDescriptor fd_;
  Bytes size_;
};

// OK when `fd` is a file of exactly `bytes` bytes that cannot change its size: what a client asks before it maps one.
absl::Status CheckSealed(int fd, size_t bytes);

}  // namespace tenure::daemon
