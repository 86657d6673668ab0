// How KV gets from this process's memory into a peer's: registered memory, addresses that travel in pulls, posted
// writes.
//
// P and D each own one transport of the same kind. D registers its KV and sends Address() with its pulls; P registers
// its own KV and posts the pieces of its write plans to that address (design of the P/D connector; pd_protocol spec §10
// for what the Mooncake engine does in this place).
//
// Threads: all methods but the destructor may be called from any thread. `done` runs on a thread of the transport, with
// no lock held, exactly once a post, never inside Post; it must not block, register memory or destroy the transport,
// and may post. The destructor ends what is running, answers every post that is open and then returns.
//
// A deadline is a time of the clock that the transport was made with.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/pd/transport_address.h"
#include "tenure/pd/write_piece.h"
#include "tenure/pd/write_result.h"

namespace tenure::transfer {

// Host memory, or GPU memory where the transport can (ucx).
struct MemoryRange {
  uint64_t address = 0;
  uint64_t size = 0;  // Bytes.
};

// The status of a result. OK: every byte is in the peer's memory. InvalidArgument: pieces outside of registered memory,
// an address that is none, or beyond the maxima; nothing was written, unless registered memory was not there on one of
// the sides. FailedPrecondition: this peer cannot be written to with this transport. DeadlineExceeded: some bytes may
// be written. Unavailable: the peer is gone, or the transport ends; some may be. ResourceExhausted: too many posts are
// open; nothing was written. What it means that a result is not settled, pd/write_result.h says.
using WriteResult = pd::WriteResult;
using WriteDone = std::function<void(WriteResult)>;

class Transport {
 public:
  static constexpr size_t kPiecesMax = 1 << 20;  // A post.
  static constexpr size_t kOpenPostsMax = 4096;  // Beyond them a post fails with ResourceExhausted.
  static constexpr size_t kRangesMax = 4096;     // Registered ranges, of this process and of a peer.

  virtual ~Transport() = default;

  // The `kind` of this transport's addresses.
  virtual std::string_view kind() const = 0;

  // Lets peers write to these ranges, and this process write from them; adds to what is registered. Each storage once,
  // before the first Address() that shall name it. The memory outlives the transport. InvalidArgument for empty,
  // wrapping, overlapping and too many ranges, Unavailable when the system refuses; then none of them is registered.
  virtual absl::Status Register(const std::vector<MemoryRange>& ranges) = 0;

  // Names this transport and all that is registered.
  virtual pd::TransportAddress Address() const = 0;

  // Whether a post to `peer` could work, without writing. FailedPrecondition says what is in the way and which
  // transport to use instead; Unavailable: the peer is gone.
  virtual absl::Status CanReach(const pd::TransportAddress& peer) = 0;

  // Writes every piece from this process's memory into the peer's and then calls `done`. Pieces must lie inside of
  // registered ranges on both sides and do not overlap at the peer; no order is promised among them. The memory read
  // must not change until `done`.
  virtual void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
                    WriteDone done) = 0;

 protected:
  // The address of this kind that the peer has, alone or in a list (transport_offers.h); FailedPrecondition, with what
  // both sides have, when there is none.
  absl::StatusOr<std::string> AddressFor(const pd::TransportAddress& peer) const;
};

}  // namespace tenure::transfer
