// The transport between hosts: UCX writes (RDMA where there is a network card for it, otherwise TCP), GPU memory too
// where UCX has it.
//
// One thread owns everything of UCX and sleeps when nothing moves. Where both hosts have an RDMA card, or one side's
// memory is a GPU's, P writes with UCX; otherwise D's thread takes messages and copies (ucx_receiver.h), so a D that is
// stopped makes a post run into its deadline. A dead peer is an error as soon as the network tells; a host that
// vanishes, after UCX's keepalive (20 s) or the deadline.
//
// Both sides check every piece against what D has registered; D's check does not see what a card writes, nor what goes
// to a GPU without one: let only P and D reach each other's ports. Registered memory that D unmaps ends D's process.
//
// UCX_* variables of the environment apply, but for shared-memory lanes: they are never used, since a peer that is
// killed leaves them hanging. UCX has to be installed (libucp.so.0, 1.13 or newer); it is loaded when the first
// transport is made.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

struct UcxTransportOptions {
  // Of this machine: peers connect to this address, at a port that the system chooses. A name is looked up once.
  std::string host = "127.0.0.1";
  // UCX's own list (UCX_TLS); empty: all but shared memory. A list that allows shared memory is the caller's risk.
  std::string transports = {};
};

class UcxTransport : public Transport {
 public:
  // `clock` outlives the transport. Unavailable: UCX is missing, too old or does not start. InvalidArgument: `host`.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxTransportOptions& options, const Clock& clock);

  static constexpr std::string_view kKind = "ucx";
  std::string_view kind() const override { return kKind; }

  // Writes and messages under way to one peer; the others of a post wait for them.
  static constexpr size_t kInFlightMax = 256;
  // Open connections; beyond them the longest unused one is closed.
  static constexpr size_t kEndpointsMax = 1024;
};

}  // namespace tenure::transfer
