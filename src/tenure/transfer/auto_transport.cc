#include "tenure/transfer/auto_transport.h"

#include <algorithm>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/local_transport.h"
#include "tenure/transfer/rdma_device.h"
#include "tenure/transfer/tcp_transport.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_transport.h"

namespace tenure::transfer {
namespace {

const TransportOffer* Find(const std::vector<TransportOffer>& offers, std::string_view kind) {
  const auto found =
      std::find_if(offers.begin(), offers.end(), [kind](const auto& offer) { return offer.kind == kind; });
  return found == offers.end() ? nullptr : &*found;
}

bool IsHostMemory(const std::vector<MemoryRange>& ranges) {
  return std::none_of(ranges.begin(), ranges.end(), [](const MemoryRange& range) {
    return absl::IsInvalidArgument(CheckHostMemory(range.address, range.size));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<AutoTransport>> AutoTransport::Create(const std::string& host, const Clock& clock) {
  Ways ways;
  ways.start_ucx = [host, &clock]() -> absl::StatusOr<std::unique_ptr<Transport>> {
    return UcxTransport::Create({.host = host}, clock);
  };
  auto tcp = TcpTransport::Create({.host = host}, clock);
  if (absl::IsInvalidArgument(tcp.status())) return tcp.status();
  if (!tcp.ok()) LogInfo("KV does not take the tcp transport: {}", Message(tcp.status()));
  if (tcp.ok()) ways.tcp = *std::move(tcp);
  auto local = LocalTransport::Create({}, clock);
  if (!local.ok()) LogInfo("KV does not take the local transport: {}", Message(local.status()));
  if (local.ok()) ways.local = *std::move(local);
  absl::StatusOr<std::unique_ptr<Transport>> ucx = nullptr;
  if (HasRdmaDevice() || (ways.tcp == nullptr && ways.local == nullptr)) ucx = ways.start_ucx();
  if (!ucx.ok()) LogInfo("KV does not take this host's RDMA cards: {}", Message(ucx.status()));
  if (ucx.ok()) ways.ucx = *std::move(ucx);
  if (ways.local == nullptr && ways.tcp == nullptr && ways.ucx == nullptr) {
    return Unavailable("no transport can be used: {}; {}; {}", Message(local.status()), Message(tcp.status()),
                       Message(ucx.status()));
  }
  return std::make_unique<AutoTransport>(std::move(ways));
}

AutoTransport::AutoTransport(Ways ways) : start_ucx_(std::move(ways.start_ucx)) {
  // UCX first: it may fail for reasons of the system, and what it has taken is valid for the others.
  for (std::unique_ptr<Transport>* way : {&ways.ucx, &ways.tcp, &ways.local}) {
    if (*way == nullptr) continue;
    on_.push_back(way->get());
    owned_.push_back(std::move(*way));
  }
  messenger_ = on_.back();
}

absl::Status AutoTransport::Register(const std::vector<MemoryRange>& ranges) {
  const MutexLock starting(starting_);
  if (!IsHostMemory(ranges)) TENURE_RETURN_IF_ERROR(Ucx().status());
  std::vector<Transport*> on;
  {
    const MutexLock lock(mutex_);
    on = on_;
  }
  for (size_t i = 0; i < on.size(); ++i) {
    const absl::Status status = on[i]->Register(ranges);
    if (status.ok()) continue;
    if (i == 0) return status;
    TurnOff(*on[i], status);
  }
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  return absl::OkStatus();
}

absl::StatusOr<Transport*> AutoTransport::Ucx() {
  if (Transport* running = On(UcxTransport::kKind); running != nullptr) return running;
  if (start_ucx_ == nullptr) return Unavailable("this side is without ucx");
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<Transport> ucx, start_ucx_());
  if (!ranges_.empty()) TENURE_RETURN_IF_ERROR(ucx->Register(ranges_));
  const MutexLock lock(mutex_);
  on_.insert(on_.begin(), ucx.get());
  ways_.clear();
  owned_.push_back(std::move(ucx));
  return on_.front();
}

Transport* AutoTransport::On(std::string_view kind) const {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(on_.begin(), on_.end(), [kind](const Transport* way) { return way->kind() == kind; });
  return found == on_.end() ? nullptr : *found;
}

void AutoTransport::TurnOff(const Transport& way, const absl::Status& why) {
  LogInfo("KV does not take the {} transport any more: {}", way.kind(), Message(why));
  const MutexLock lock(mutex_);
  on_.erase(std::find(on_.begin(), on_.end(), &way));
  ways_.clear();
}

pd::TransportAddress AutoTransport::Address() const {
  std::vector<TransportOffer> offers;
  std::vector<pd::MemoryKey> memory;
  for (const std::string_view kind : {LocalTransport::kKind, TcpTransport::kKind, UcxTransport::kKind}) {
    const Transport* way = On(kind);
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
  messenger_->Post(peer, {}, deadline, [status = way.status(), done = std::move(done)](const WriteResult&) {
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
  absl::Status refusal;
  if (Transport* local = On(LocalTransport::kKind); local != nullptr && Find(offers, local->kind()) != nullptr) {
    refusal = local->CanReach(peer);
    // A peer that is gone is told by the post.
    if (!absl::IsFailedPrecondition(refusal)) return local;
  }
  const TransportOffer* ucx = Find(offers, UcxTransport::kKind);
  Transport* way = Find(offers, TcpTransport::kKind) == nullptr ? nullptr : On(TcpTransport::kKind);
  if (ucx != nullptr && (way == nullptr || UcxIsBetter(ucx->address))) {
    const MutexLock starting(starting_);
    const absl::StatusOr<Transport*> started = Ucx();
    if (started.ok()) way = *started;
    if (way == nullptr)
      return FailedPrecondition("the peer offers {}, and {}", KindsOf(offers), Message(started.status()));
  }
  if (way != nullptr) {
    if (!refusal.ok()) LogInfo("KV takes the {} transport to a peer: {}", way->kind(), Message(refusal));
    return way;
  }
  if (!refusal.ok()) return refusal;
  return FailedPrecondition("the peer offers {}, this side {}; set the same transport on both sides", KindsOf(offers),
                            KindsOf(OffersOf(Address()).value()));
}

bool AutoTransport::UcxIsBetter(const std::string& peer) const {
  const absl::StatusOr<UcxAddress> theirs = DecodeUcxAddress(peer);
  if (!theirs.ok()) return false;
  if (theirs->device_memory) return true;
  const Transport* running = On(UcxTransport::kKind);
  if (running == nullptr) return false;
  const absl::StatusOr<UcxAddress> own = DecodeUcxAddress(running->Address().address);
  return own.ok() && (own->device_memory || (own->rdma && theirs->rdma));
}

}  // namespace tenure::transfer
