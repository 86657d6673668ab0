#include "tenure/daemon/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status NoMemory(const SharedMemory::Options& options, const char* step) {
  const int error = errno;
  if (options.huge_pages) {
    return ResourceExhausted(
        "no {} bytes of huge pages for the pool ({}: {}); reserve them (sysctl vm.nr_hugepages) or leave out "
        "--huge-pages",
        options.size.value(), step, std::strerror(error));
  }
  return ResourceExhausted("no {} bytes of memory for the pool ({}: {}); make --memory smaller", options.size.value(),
                           step, std::strerror(error));
}

// While it lives, and memory runs out all the same, the kernel ends this process and not an engine.
class FirstToGo {
 public:
  FirstToGo() {
    std::ifstream(kFile) >> before_;
    std::ofstream(kFile) << 1000;
  }
  ~FirstToGo() { std::ofstream(kFile) << before_; }
  FirstToGo(const FirstToGo&) = delete;
  FirstToGo& operator=(const FirstToGo&) = delete;

 private:
  static constexpr char kFile[] = "/proc/self/oom_score_adj";
  int before_ = 0;
};

}  // namespace

absl::StatusOr<SharedMapping> SharedMapping::Map(int fd, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return ResourceExhausted("mapping {} bytes of the pool's memory failed: {}", bytes, std::strerror(errno));
  }
  SharedMapping mapping;
  mapping.bytes_ = std::span(static_cast<std::byte*>(address), bytes);
  if (madvise(address, bytes, MADV_DONTFORK) != 0) {
    return ResourceExhausted("keeping the pool's memory out of forked children failed: {}", std::strerror(errno));
  }
  madvise(address, bytes, MADV_HUGEPAGE);  // Only a wish; the machine decides (shmem_enabled).
  return mapping;
}

SharedMapping::~SharedMapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const Options& options) {
  // The kernel would begin to give and then end processes, this one or another, instead of refusing.
  const int64_t machine_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (options.size.value() > machine_bytes) {
    return ResourceExhausted("no {} bytes of memory for the pool: this machine has {}; make --memory smaller",
                             options.size.value(), machine_bytes);
  }
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (options.huge_pages ? MFD_HUGETLB : 0u);
  FileDescriptor fd(memfd_create("tenure-pool", flags));
  if (!fd.valid()) return NoMemory(options, "memfd_create");
  if (ftruncate(fd.get(), options.size.value()) != 0) return NoMemory(options, "ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory(options, "sealing");
  const FirstToGo first_to_go;
  if (fallocate(fd.get(), 0, 0, options.size.value()) != 0) return NoMemory(options, "fallocate");
  return SharedMemory(std::move(fd), options.size);
}

void SharedMemory::GiveBackPages() {
  // Best effort: what stays goes when the last mapping does.
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size_.value());
}

absl::Status CheckSealed(int fd, size_t bytes) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return BadData("the pool's memory has no size: {}", std::strerror(errno));
  if (static_cast<uint64_t>(status.st_size) != bytes) {
    return BadData("the pool's memory has {} bytes, the daemon says {}", status.st_size, bytes);
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return BadData("the pool's memory is not sealed against shrinking");
  return absl::OkStatus();
}

}  // namespace tenure::daemon
