// The transport of one host: process_vm_writev straight into the peer's memory, no copy between and no socket.
//
// D does nothing for it: a stopped D's memory can be written, a killed D is an error at once. When a post has its
// result, no byte of it lands later: WriteResult::settled is always true. GPU memory cannot be reached.
//
// Both processes share a pid namespace and P may trace D (same user; kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE);
// CanReach tells, and names the way out.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

struct LocalTransportOptions {
  // Posts that are written at the same time; one thread each. 1 to 64. A thread without a post helps with a large one,
  // part by part, until the next post comes.
  int threads = 2;
};

class LocalTransport : public Transport {
 public:
  // `clock` outlives the transport. InvalidArgument for options, Unavailable without /proc.
  static absl::StatusOr<std::unique_ptr<LocalTransport>> Create(const LocalTransportOptions& options,
                                                                const Clock& clock);

  static constexpr std::string_view kKind = "local";
  std::string_view kind() const override { return kKind; }

  static constexpr int kThreadsMax = 64;
  // Between two parts of this size the deadline and the peer's life are looked at, and a thread that helps looks for a
  // post that waits: under a millisecond of copying.
  static constexpr uint64_t kPartBytesMax = 2 << 20;
};

}  // namespace tenure::transfer
