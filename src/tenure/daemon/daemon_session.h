// The daemon's side of one client's conversation: a state machine without I/O. Messages in, answers out.
//
// Nothing a client sends can end the process: what cannot be understood is answered with an error and, where the stream
// can no longer be trusted, the conversation is over. Offsets and sizes come from the pool's own table only. All
// sessions are stepped by one thread; the pool and the shared state outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/daemon/client_holdings.h"
#include "tenure/daemon/wire_messages.h"
#include "tenure/daemon/wire_put.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::daemon {

// What the sessions of one daemon share.
struct DaemonState {
  HoldingLimits limits;
  Bytes memory;
  Bytes object_max;
  bool closed = false;
  bool draining = false;  // Nothing new is handed out; what is held may be finished.

  int64_t messages_total = 0;
  int64_t errors_total = 0;         // Answers of kind error.
  int64_t held_refusals_total = 0;  // Objects refused because their client holds too much.
};

class DaemonSession {
 public:
  enum class Next : uint8_t {
    kGoOn,
    kSendMemory,  // The answer takes the descriptor of the memory along.
    kOver,        // The answer is the last one; what the client holds stays until it is gone, for it may still copy.
  };

  DaemonSession(store::EmbeddedPool& pool, const Clock& clock, DaemonState& state)
      : pool_(pool), clock_(clock), state_(state), holdings_(state.limits) {}

  // Takes one message and appends its answer, if it has one.
  Next Handle(const FrameHeader& header, std::span<const std::byte> body, std::vector<std::byte>& out);

  const ClientHoldings& holdings() const { return holdings_; }

 private:
  Next Hello(std::span<const std::byte> body);
  Next OpenNamespace(std::span<const std::byte> body);
  Next Probe(std::span<const std::byte> body);
  Next Lease(std::span<const std::byte> body);
  Next ReleaseLease(std::span<const std::byte> body);
  Next Reserve(std::span<const std::byte> body);
  Next Commit(std::span<const std::byte> body);
  Next Abandon(std::span<const std::byte> body);
  Next Pin(std::span<const std::byte> body);
  Next Unpin(std::span<const std::byte> body);
  Next Remove(std::span<const std::byte> body);
  Next Clear(std::span<const std::byte> body);
  Next Stats(std::span<const std::byte> body);

  template <typename Reply>
  Next Answer(const Reply& reply);
  Next Refuse(ErrorCode code, std::string text);
  Next Refuse(const absl::Status& status);
  Next Malformed(std::string_view what);
  Next Draining();

  store::EmbeddedPool& pool_;
  const Clock& clock_;
  DaemonState& state_;
  ClientHoldings holdings_;
  bool greeted_ = false;

  // The message being handled.
  uint32_t request_ = 0;
  std::vector<std::byte>* out_ = nullptr;

  // Kept between messages for their memory.
  ProbeRequest probe_;
  ProbeReply probe_reply_;
  LeaseRequest lease_;
  LeaseReply lease_reply_;
  ReserveRequest reserve_;
  ReserveReply reserve_reply_;
  CommitRequest commit_;
  CommitReply commit_reply_;
  PinRequest pin_;
  PinReply pin_reply_;
  std::vector<store::ConstSegment> sizes_;
  std::vector<store::PutObject> objects_;
  std::vector<store::PutAnswer> put_answers_;
  std::vector<store::KeyAnswer> key_answers_;
};

}  // namespace tenure::daemon
