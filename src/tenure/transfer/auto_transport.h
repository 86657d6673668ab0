// The transport that takes the best way to each peer: `local` on one host; between hosts `ucx` where both have an RDMA
// card or one side's memory is a GPU's, otherwise `tcp`. Its address lists what this process has of them, so that peers
// with one of them alone reach it, and it reaches them.
//
// UCX is started when something needs it: an RDMA card of this host, memory that is not the host's, a peer that offers
// nothing else. Until then its listener is not there for strangers, and UCX need not be installed. So a side with host
// memory and no RDMA card is reached from a GPU's memory only when it is set to "ucx".
//
// `local` is refused where processes may not write to each other (containers, Yama): then the next best way is taken
// for that peer, and one line in the log says so. Memory that `local` and `tcp` cannot reach (a GPU's) turns them off
// for good.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/transport.h"
#include "tenure/transfer/transport_offers.h"

namespace tenure::transfer {

class AutoTransport final : public Transport {
 public:
  struct Ways {
    // Null for none.
    std::unique_ptr<Transport> local;
    std::unique_ptr<Transport> tcp;
    std::unique_ptr<Transport> ucx;
    // When there is no `ucx` and it is needed; may fail again and again.
    std::function<absl::StatusOr<std::unique_ptr<Transport>>()> start_ucx;
  };

  // `host` as in UcxTransportOptions; `clock` outlives the transport. A way that this machine does not have is left
  // out, with a line in the log; Unavailable when none is left.
  static absl::StatusOr<std::unique_ptr<AutoTransport>> Create(const std::string& host, const Clock& clock);
  // At least one of them is given.
  explicit AutoTransport(Ways ways);

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
  // Whether `ucx` serves the peer with this address of that kind better than `tcp`.
  bool UcxIsBetter(const std::string& peer) const;
  // The one of these that is on; null for none.
  Transport* On(std::string_view kind) const;
  void TurnOff(const Transport& way, const absl::Status& why);
  // Starts it, when it is not there yet, with all that is registered.
  absl::StatusOr<Transport*> Ucx() ABSL_EXCLUSIVE_LOCKS_REQUIRED(starting_);

  const std::function<absl::StatusOr<std::unique_ptr<Transport>>()> start_ucx_;
  Mutex starting_;  // Held while ways come and ranges are registered, which may take a moment; before mutex_.
  std::vector<std::unique_ptr<Transport>> owned_ ABSL_GUARDED_BY(starting_);
  std::vector<MemoryRange> ranges_ ABSL_GUARDED_BY(starting_);
  mutable Mutex mutex_;
  std::vector<Transport*> on_ ABSL_GUARDED_BY(mutex_);              // In the order in which ranges are registered.
  Transport* messenger_ = nullptr;                                  // Any of them.
  std::map<std::string, Transport*> ways_ ABSL_GUARDED_BY(mutex_);  // By the peer's kind and address.
};

}  // namespace tenure::transfer
