#include "tenure/transfer/local_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

constexpr std::string_view kVersion = "1";

// The whole of a small file of /proc; empty when it cannot be read.
std::string ReadSmallFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::array<char, 1024> text;
  const ssize_t size = read(file, text.data(), text.size());
  close(file);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// Field 22 of /proc/PID/stat, counted after the name, which may hold blanks and brackets; 0 when there is none.
uint64_t StartTime(pid_t pid) {
  const std::string stat = ReadSmallFile(fmt::format("/proc/{}/stat", pid));
  size_t at = stat.rfind(')');
  if (at == std::string::npos) return 0;
  for (int field = 2; field < 22; ++field) {
    at = stat.find(' ', at + 1);
    if (at == std::string::npos) return 0;
  }
  uint64_t ticks = 0;
  return ParseNumber(std::string_view(stat).substr(at + 1, stat.find(' ', at + 1) - at - 1), ticks) ? ticks : 0;
}

std::string BootId() {
  std::string id = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::string PidNamespace() {
  std::array<char, 128> text;
  const ssize_t size = readlink("/proc/self/ns/pid", text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

}  // namespace

absl::StatusOr<LocalIdentity> OwnIdentity() {
  LocalIdentity own;
  own.pid = getpid();
  own.start_time = StartTime(own.pid);
  own.boot_id = BootId();
  own.pid_namespace = PidNamespace();
  if (own.start_time == 0 || own.boot_id.empty() || own.pid_namespace.empty()) {
    return Unavailable(
        "the local transport cannot read /proc/{}/stat, /proc/sys/kernel/random/boot_id and "
        "/proc/self/ns/pid; mount /proc, or use the ucx transport",
        own.pid);
  }
  return own;
}

std::string EncodeLocalIdentity(const LocalIdentity& identity) {
  return fmt::format("{} {} {} {} {} {} {}", kVersion, identity.pid, identity.start_time, identity.boot_id,
                     identity.pid_namespace, identity.mark_address, identity.mark);
}

absl::StatusOr<LocalIdentity> DecodeLocalIdentity(std::string_view address) {
  std::array<std::string_view, 7> fields;
  size_t count = 0;
  for (std::string_view rest = address; count < fields.size(); ++count) {
    const size_t blank = rest.find(' ');
    fields[count] = rest.substr(0, blank);
    rest = blank == rest.npos ? std::string_view() : rest.substr(blank + 1);
  }
  LocalIdentity identity;
  identity.boot_id = fields[3];
  identity.pid_namespace = fields[4];
  const bool numbers = ParseNumber(fields[1], identity.pid) && ParseNumber(fields[2], identity.start_time) &&
                       ParseNumber(fields[5], identity.mark_address) && ParseNumber(fields[6], identity.mark);
  if (!numbers || identity.pid <= 0 || EncodeLocalIdentity(identity) != address) {
    return InvalidArgument(
        "the peer's address ({} bytes) is none of the local transport; let both sides run one version "
        "of Tenure with one transport",
        address.size());
  }
  return identity;
}

absl::Status CheckHostMemory(uint64_t address, uint64_t size) {
  if (size == 0 || size - 1 > UINT64_MAX - address) return absl::OkStatus();  // No range; MemoryMap says so.
  // A pipe takes bytes of memory that the kernel can copy, and needs no permission.
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return Unavailable("this process has no pipe to look at its memory with: {}", std::strerror(errno));
  }
  bool there = true;
  for (const uint64_t at : {address, address + (size - 1)}) {
    there = there && write(ends[1], reinterpret_cast<const void*>(at), 1) == 1;
  }
  close(ends[0]);
  close(ends[1]);
  if (there) return absl::OkStatus();
  return InvalidArgument(
      "{} bytes at {:#x} are not memory of this host; register mapped memory, or use the ucx "
      "transport for a GPU's",
      size, address);
}

LocalPeer::LocalPeer(LocalIdentity identity, int pidfd) : identity_(std::move(identity)), pidfd_(pidfd) {}

LocalPeer::LocalPeer(LocalPeer&& other) noexcept
    : identity_(std::move(other.identity_)), pidfd_(std::exchange(other.pidfd_, -1)) {}

LocalPeer::~LocalPeer() {
  if (pidfd_ >= 0) close(pidfd_);
}

absl::StatusOr<LocalPeer> LocalPeer::Open(const LocalIdentity& identity) {
  if (identity.boot_id != BootId()) {
    return FailedPrecondition("the peer runs on another host, or before this host's last boot; use the ucx transport");
  }
  if (identity.pid_namespace != PidNamespace()) {
    return FailedPrecondition(
        "the peer's process is in another pid namespace (a container of its own); share the pid "
        "namespace, or use the ucx transport");
  }
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0));
  if (pidfd < 0 && errno == ESRCH) return Unavailable("the peer's process {} has ended", identity.pid);
  if (pidfd < 0) {
    return FailedPrecondition("this system does not give a handle of the peer's process {} ({}); use the ucx transport",
                              identity.pid, std::strerror(errno));
  }
  LocalPeer peer(identity, pidfd);
  // Read after the handle was made: when the times are equal, the handle is that process and stays it.
  if (StartTime(identity.pid) != identity.start_time) {
    return Unavailable("the peer's process {} has ended; another one has its number", identity.pid);
  }
  TENURE_RETURN_IF_ERROR(peer.CheckMark());
  return peer;
}

absl::Status LocalPeer::CheckAlive() const {
  pollfd ended = {pidfd_, POLLIN, 0};
  int ready = 0;
  // A signal that waits for this thread interrupts it even without a time to wait.
  while ((ready = poll(&ended, 1, 0)) < 0 && errno == EINTR) {
  }
  if (ready == 0) return absl::OkStatus();
  return Unavailable("the peer's process {} has ended", identity_.pid);
}

absl::Status LocalPeer::CheckMark() const {
  TENURE_RETURN_IF_ERROR(CheckAlive());
  uint64_t mark = 0;
  const iovec own = {&mark, sizeof(mark)};
  const iovec theirs = {reinterpret_cast<void*>(identity_.mark_address),
                        sizeof(mark)};  // Never used here as a pointer.
  const ssize_t size = process_vm_readv(identity_.pid, &own, 1, &theirs, 1, 0);
  if (size < 0 && errno != EFAULT) return SystemError(errno);
  if (size == sizeof(mark) && mark == identity_.mark) return absl::OkStatus();
  return Unavailable("the transport of the peer's process {} has ended", identity_.pid);
}

absl::StatusOr<size_t> LocalPeer::Write(const iovec* from, size_t from_count, const iovec* to, size_t to_count) const {
  const ssize_t size = process_vm_writev(identity_.pid, from, from_count, to, to_count, 0);
  if (size > 0) return static_cast<size_t>(size);
  const int error = size == 0 ? EFAULT : errno;
  if (error != EFAULT) return SystemError(error);
  return InvalidArgument(
      "registered memory is not there, from {:#x} here or from {:#x} in the peer's process {} on; keep "
      "it mapped while the transport lives",
      reinterpret_cast<uint64_t>(from->iov_base), reinterpret_cast<uint64_t>(to->iov_base), identity_.pid);
}

absl::Status LocalPeer::SystemError(int error) const {
  if (error == ESRCH) return Unavailable("the peer's process {} has ended", identity_.pid);
  if (error == EPERM || error == ENOSYS) {
    return FailedPrecondition(
        "this process may not write to the peer's process {} ({}); run both as one user, with "
        "kernel.yama.ptrace_scope 0 and CAP_SYS_PTRACE or a seccomp profile that allows "
        "process_vm_writev in containers, or use the ucx transport",
        identity_.pid, std::strerror(error));
  }
  return Unavailable("writing to the peer's process {} failed: {}", identity_.pid, std::strerror(error));
}

}  // namespace tenure::transfer
