// The transport that takes the best way to each peer: `local` on one host, `ucx` otherwise, with what this process has
// of them. Its address lists both, so that peers with one of them alone reach it, and it reaches them.
//
// `local` is refused where processes may not write to each other (containers, Yama): then `ucx` is taken for that peer,
// and one line in the log says so. Memory that `local` cannot reach (a GPU's) turns it off for good.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/transport.h"
#include "tenure/transfer/transport_offers.h"

namespace tenure::transfer {

class AutoTransport final : public Transport {
 public:
  // `host` as in UcxTransportOptions; `clock` outlives the transport. A way that this machine does not have is left
  // out, with a line in the log; Unavailable when none is left.
  static absl::StatusOr<std::unique_ptr<AutoTransport>> Create(const std::string& host, const Clock& clock);
  // Of these; null for none. At least one is given.
  AutoTransport(std::unique_ptr<Transport> local, std::unique_ptr<Transport> ucx);

  std::string_view kind() const override { return kAutoKind; }
  absl::Status Register(const std::vector<MemoryRange>& ranges) override;
  pd::TransportAddress Address() const override;
  absl::Status CanReach(const pd::TransportAddress& peer) override;
  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override;

  // Peers whose way is remembered; beyond them they are all asked again.
  static constexpr size_t kPeersMax = 4096;

 private:
  // The way to a peer; FailedPrecondition lists what both sides have.
  absl::StatusOr<Transport*> Choose(const pd::TransportAddress& peer);
  absl::StatusOr<Transport*> ChooseAnew(const pd::TransportAddress& peer);
  std::string OwnKinds() const;

  const std::unique_ptr<Transport> local_;
  const std::unique_ptr<Transport> ucx_;
  mutable Mutex mutex_;
  bool local_off_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Transport*> ways_ ABSL_GUARDED_BY(mutex_);  // By the peer's kind and address.
};

}  // namespace tenure::transfer
