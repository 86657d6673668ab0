#include "tenure/daemon/client_holdings.h"

#include <algorithm>

namespace tenure::daemon {

ClientHoldings::~ClientHoldings() {
  for (auto& [name, lease] : leases_) lease.Forget();
}

bool ClientHoldings::HasRoom(Bytes bytes, int64_t objects) const {
  return bytes <= limits_.held_bytes_max - held_bytes_ && objects <= limits_.held_objects_max - held_objects_;
}

bool ClientHoldings::HasRoomForLease(int64_t keys, MonotonicTime now) {
  if (keys > limits_.leased_keys_max - leased_keys_) DropExpired(now);
  return keys <= limits_.leased_keys_max - leased_keys_;
}

uint64_t ClientHoldings::AddLease(store::Lease lease) {
  const uint64_t name = next_name_++;
  leased_keys_ += static_cast<int64_t>(lease.size());
  lease_deadlines_.emplace(lease.deadline(), name);
  leases_.emplace(name, std::move(lease));
  return name;
}

void ClientHoldings::ReleaseLease(uint64_t name) {
  const auto found = leases_.find(name);
  if (found == leases_.end()) return;
  leased_keys_ -= static_cast<int64_t>(found->second.size());
  lease_deadlines_.erase({found->second.deadline(), name});
  leases_.erase(found);
}

void ClientHoldings::DropExpired(MonotonicTime now) {
  while (!lease_deadlines_.empty() && lease_deadlines_.begin()->first <= now) {
    ReleaseLease(lease_deadlines_.begin()->second);
  }
}

template <typename Held>
void ClientHoldings::Count(const std::vector<Held>& held, int64_t sign) {
  for (const Held& one : held) {
    if (!one.valid()) continue;
    held_bytes_ += one.memory().size * sign;
    held_objects_ += sign;
  }
}

uint64_t ClientHoldings::AddReservations(std::vector<store::Reservation> reservations) {
  const uint64_t name = next_name_++;
  const int64_t open = std::count_if(reservations.begin(), reservations.end(),
                                     [](const store::Reservation& reservation) { return reservation.valid(); });
  if (open == 0) return name;
  Count(reservations, 1);
  reserved_.emplace(name, ReservedBatch{.reservations = std::move(reservations), .open = open});
  return name;
}

std::optional<store::Reservation> ClientHoldings::TakeReservation(uint64_t batch, uint32_t ordinal) {
  const auto found = reserved_.find(batch);
  if (found == reserved_.end() || ordinal >= found->second.reservations.size()) return std::nullopt;
  store::Reservation& place = found->second.reservations[ordinal];
  if (!place.valid()) return std::nullopt;
  held_bytes_ -= place.memory().size;
  --held_objects_;
  std::optional<store::Reservation> taken(std::move(place));
  if (--found->second.open == 0) reserved_.erase(found);
  return taken;
}

void ClientHoldings::Abandon(uint64_t batch) {
  const auto found = reserved_.find(batch);
  if (found == reserved_.end()) return;
  Count(found->second.reservations, -1);
  reserved_.erase(found);
}

uint64_t ClientHoldings::AddPins(std::vector<store::PinnedObject> pins) {
  const uint64_t name = next_name_++;
  const int64_t before = held_objects_;
  Count(pins, 1);
  if (held_objects_ > before) pinned_.emplace(name, std::move(pins));
  return name;
}

const store::PinnedObject* ClientHoldings::FindPin(uint64_t batch, uint32_t ordinal) const {
  const auto found = pinned_.find(batch);
  if (found == pinned_.end() || ordinal >= found->second.size()) return nullptr;
  const store::PinnedObject& pin = found->second[ordinal];
  return pin.valid() ? &pin : nullptr;
}

void ClientHoldings::Unpin(uint64_t batch) {
  const auto found = pinned_.find(batch);
  if (found == pinned_.end()) return;
  Count(found->second, -1);
  pinned_.erase(found);
}

}  // namespace tenure::daemon
