#include "tenure/transfer/auto_transport.h"

#include <algorithm>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/transfer/local_transport.h"
#include "tenure/transfer/ucx_transport.h"

namespace tenure::transfer {

absl::StatusOr<std::unique_ptr<AutoTransport>> AutoTransport::Create(const std::string& host, const Clock& clock) {
  auto local = LocalTransport::Create({}, clock);
  auto ucx = UcxTransport::Create({.host = host}, clock);
  if (absl::IsInvalidArgument(ucx.status())) return ucx.status();
  if (!local.ok() && !ucx.ok()) {
    return Unavailable("neither transport can be used: {}; {}", Message(local.status()), Message(ucx.status()));
  }
  if (!ucx.ok()) LogInfo("KV moves between processes of this host only: {}", Message(ucx.status()));
  if (!local.ok()) LogInfo("KV takes the ucx transport on this host too: {}", Message(local.status()));
  return std::make_unique<AutoTransport>(local.ok() ? *std::move(local) : nullptr,
                                         ucx.ok() ? *std::move(ucx) : nullptr);
}

AutoTransport::AutoTransport(std::unique_ptr<Transport> local, std::unique_ptr<Transport> ucx)
    : local_(std::move(local)), ucx_(std::move(ucx)) {}

absl::Status AutoTransport::Register(const std::vector<MemoryRange>& ranges) {
  // UCX first: it may fail for reasons of the system, and what it has taken is valid for `local`.
  if (ucx_ != nullptr) TENURE_RETURN_IF_ERROR(ucx_->Register(ranges));
  if (local_ == nullptr) return absl::OkStatus();
  {
    const MutexLock lock(mutex_);
    if (local_off_) return absl::OkStatus();
  }
  const absl::Status status = local_->Register(ranges);
  if (status.ok() || ucx_ == nullptr) return status;
  LogInfo("KV takes the ucx transport on this host too: {}", Message(status));
  const MutexLock lock(mutex_);
  local_off_ = true;
  ways_.clear();
  return absl::OkStatus();
}

pd::TransportAddress AutoTransport::Address() const {
  std::vector<TransportOffer> offers;
  std::vector<pd::MemoryKey> memory;
  bool local_off = local_ == nullptr;
  {
    const MutexLock lock(mutex_);
    local_off = local_off || local_off_;
  }
  for (const Transport* way : {local_off ? nullptr : local_.get(), ucx_.get()}) {
    if (way == nullptr) continue;
    pd::TransportAddress address = way->Address();
    offers.push_back({std::move(address.kind), std::move(address.address)});
    memory = std::move(address.memory);  // The last one's: the same ranges, with keys where there is ucx.
  }
  return {std::string(kAutoKind), EncodeOffers(offers), std::move(memory)};
}

absl::Status AutoTransport::CanReach(const pd::TransportAddress& peer) {
  TENURE_ASSIGN_OR_RETURN(Transport * way, Choose(peer));
  return way->CanReach(peer);
}

void AutoTransport::Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
                         WriteDone done) {
  const absl::StatusOr<Transport*> way = Choose(peer);
  if (way.ok()) return (*way)->Post(peer, std::move(pieces), deadline, std::move(done));
  // The refusal comes from a thread of a transport, as every answer does.
  Transport& messenger = ucx_ != nullptr ? *ucx_ : *local_;
  messenger.Post(peer, {}, deadline, [status = way.status(), done = std::move(done)](const WriteResult&) {
    done({status, true});
  });
}

absl::StatusOr<Transport*> AutoTransport::Choose(const pd::TransportAddress& peer) {
  const std::string name = peer.kind + " " + peer.address;
  {
    const MutexLock lock(mutex_);
    const auto known = ways_.find(name);
    if (known != ways_.end()) return known->second;
  }
  TENURE_ASSIGN_OR_RETURN(Transport * way, ChooseAnew(peer));
  const MutexLock lock(mutex_);
  if (ways_.size() >= kPeersMax) ways_.clear();
  ways_[name] = way;
  return way;
}

absl::StatusOr<Transport*> AutoTransport::ChooseAnew(const pd::TransportAddress& peer) {
  TENURE_ASSIGN_OR_RETURN(const std::vector<TransportOffer> offers, OffersOf(peer));
  const auto offered = [&](const Transport* way) {
    return way != nullptr && std::any_of(offers.begin(), offers.end(),
                                         [way](const TransportOffer& offer) { return offer.kind == way->kind(); });
  };
  bool local = offered(local_.get());
  {
    const MutexLock lock(mutex_);
    local = local && !local_off_;
  }
  absl::Status refusal;
  if (local) {
    refusal = local_->CanReach(peer);
    // A peer that is gone is told by the post.
    if (!absl::IsFailedPrecondition(refusal)) return local_.get();
  }
  if (offered(ucx_.get())) {
    if (!refusal.ok()) LogInfo("KV takes the ucx transport to a peer: {}", Message(refusal));
    return ucx_.get();
  }
  if (!refusal.ok()) return refusal;
  return FailedPrecondition(
      "the peer offers {}, this side {}; set the same transport on both sides, or install UCX "
      "(Debian: libucx0) on both",
      KindsOf(offers), OwnKinds());
}

std::string AutoTransport::OwnKinds() const { return KindsOf(OffersOf(Address()).value()); }

}  // namespace tenure::transfer
