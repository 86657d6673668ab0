// A transport inside one process, for tests: peers find each other in a MemoryNetwork, bytes are copied, and a test
// says what goes wrong.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

class MemoryTransport;

// Which transports there are. Outlives them; thread-safe.
class MemoryNetwork {
 private:
  friend class MemoryTransport;
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::string, MemoryTransport*> transports_ ABSL_GUARDED_BY(mutex_);
};

enum class MemoryFault {
  kNone,
  kHold,     // Nothing happens until ReleaseHeld. Bytes still land after a deadline that has passed meanwhile.
  kFail,     // Half of the pieces land, then Unavailable.
  kLose,     // No byte lands, and the deadline is the answer.
  kSilence,  // The bytes land, and no answer comes before the transport ends.
};

// Thread-safe. One thread of its own carries posts out in their order; it asks the clock every millisecond, so that a
// ManualClock makes deadlines pass.
class MemoryTransport final : public Transport {
 public:
  static constexpr std::string_view kKind = "memory";

  MemoryTransport(MemoryNetwork& network, const Clock& clock);
  ~MemoryTransport() override;

  std::string_view kind() const override { return kKind; }
  absl::Status Register(const std::vector<MemoryRange>& ranges) override;
  pd::TransportAddress Address() const override;
  absl::Status CanReach(const pd::TransportAddress& peer) override;
  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override;

  // For posts from now on.
  void SetFault(MemoryFault fault);
  void ReleaseHeld();
  // Posts without an answer.
  size_t open() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenure::transfer
