// A process of this host as a target of writes: who it is, whether it is still that one, and the write itself.
//
// A pid is used again once its process is gone, so an address holds more: the kernel's boot id, the pid namespace, the
// process's start time, and a mark in its memory that its transport clears when it ends. A mark that differs tells of
// a process that has called exec, or whose transport has ended, which nothing else does.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::transfer {

struct LocalIdentity {
  pid_t pid = 0;
  uint64_t start_time = 0;  // As /proc/PID/stat has it: ticks since boot.
  std::string boot_id;
  std::string pid_namespace;
  uint64_t mark_address = 0;
  uint64_t mark = 0;

  friend bool operator==(const LocalIdentity&, const LocalIdentity&) = default;
};

// This process, with the mark's own fields left 0. Unavailable where /proc does not say.
absl::StatusOr<LocalIdentity> OwnIdentity();
std::string EncodeLocalIdentity(const LocalIdentity& identity);
// InvalidArgument for what EncodeLocalIdentity has not written.
absl::StatusOr<LocalIdentity> DecodeLocalIdentity(std::string_view address);

// Whether the first and the last byte are memory of this process that the kernel can copy. InvalidArgument for what is
// not there or a GPU's, Unavailable without a file descriptor to ask with.
absl::Status CheckHostMemory(uint64_t address, uint64_t size);

// Move-only; its const methods from any thread.
class LocalPeer {
 public:
  // FailedPrecondition: another host, another pid namespace, or not permitted. Unavailable: gone, or another process by
  // now.
  static absl::StatusOr<LocalPeer> Open(const LocalIdentity& identity);
  LocalPeer(LocalPeer&& other) noexcept;
  LocalPeer& operator=(LocalPeer&& other) = delete;
  ~LocalPeer();

  // Unavailable once the process has ended, also while it waits to be reaped.
  absl::Status CheckAlive() const;
  // And whether the mark is still what the address says.
  absl::Status CheckMark() const;
  // Writes one part, after CheckAlive: at most IOV_MAX entries a side, which cover as many bytes on both. The number of
  // bytes written, at least 1. InvalidArgument: memory that is not there on one of the sides.
  absl::StatusOr<size_t> Write(const iovec* from, size_t from_count, const iovec* to, size_t to_count) const;

 private:
  LocalPeer(LocalIdentity identity, int pidfd);
  absl::Status SystemError(int error) const;

  LocalIdentity identity_;
  int pidfd_;
};

}  // namespace tenure::transfer
