// What one client of the daemon holds in the pool: leases, reservations and pins, with a named maximum each.
//
// Reservations and pins end by the client's word or by destruction of this, never by a timer: a stopped client may
// still copy. Leases end by release or by their deadline; destruction lets them run out. One thread at a time; the pool
// outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::daemon {

struct HoldingLimits {
  Bytes held_bytes_max;  // Reserved and pinned together; at least the largest object.
  int64_t held_objects_max = int64_t{1} << 18;
  int64_t leased_keys_max = int64_t{1} << 22;  // Of leases that have not run out.
};

class ClientHoldings {
 public:
  explicit ClientHoldings(const HoldingLimits& limits) : limits_(limits) {}
  ~ClientHoldings();
  ClientHoldings(const ClientHoldings&) = delete;
  ClientHoldings& operator=(const ClientHoldings&) = delete;

  // Whether so many more would stay within the maxima.
  bool HasRoom(Bytes bytes, int64_t objects) const;
  bool HasRoomForLease(int64_t keys, MonotonicTime now);

  // Returns the name of the lease, never 0.
  uint64_t AddLease(store::Lease lease);
  void ReleaseLease(uint64_t name);  // An unknown one, or one that ran out, is nothing to release.

  // Entries that are not valid stay so; returns the batch's name.
  uint64_t AddReservations(std::vector<store::Reservation> reservations);
  // Takes one reservation out; nothing when there is none of that name and place.
  std::optional<store::Reservation> TakeReservation(uint64_t batch, uint32_t ordinal);
  void Abandon(uint64_t batch);

  uint64_t AddPins(std::vector<store::PinnedObject> pins);
  // One pin of a batch; null when there is none of that name and place.
  const store::PinnedObject* FindPin(uint64_t batch, uint32_t ordinal) const;
  void Unpin(uint64_t batch);

  Bytes held_bytes() const { return held_bytes_; }
  int64_t held_objects() const { return held_objects_; }
  int64_t leased_keys() const { return leased_keys_; }

 private:
  struct ReservedBatch {
    std::vector<store::Reservation> reservations;
    int64_t open = 0;
  };

  template <typename Held>
  void Count(const std::vector<Held>& held, int64_t sign);
  void DropExpired(MonotonicTime now);

  const HoldingLimits limits_;
  uint64_t next_name_ = 1;
  std::map<uint64_t, store::Lease> leases_;
  std::set<std::pair<MonotonicTime, uint64_t>> lease_deadlines_;
  std::map<uint64_t, ReservedBatch> reserved_;
  std::map<uint64_t, std::vector<store::PinnedObject>> pinned_;
  Bytes held_bytes_;
  int64_t held_objects_ = 0;
  int64_t leased_keys_ = 0;
};

}  // namespace tenure::daemon
