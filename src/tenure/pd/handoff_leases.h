// What a prefill worker holds for decoders, and until when: the handoff leases (pd_protocol spec §5, §6, §9).
//
// A transfer is announced when its prefill is scheduled, ready when it has ended, and freed when every decoder worker
// that needs it has been served, or when its deadline passes. The deadline is prefill end + lease; a renewal moves it
// to max(deadline, now + 2/3 lease) and never back. A pull may come first: then an entry without a request, a
// placeholder, keeps its waiters and goes with the last of them. Nothing is freed while a send runs.
//
// A state machine: the owner passes `now`, which never runs back, acts on the answers and calls Scan on every step. All
// answers are in an order that the calls alone decide. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/pd/remembered_ends.h"

namespace tenure::pd {

struct HandoffOptions {
  std::optional<absl::Duration> lease = std::nullopt;  // None: off; a ready transfer is then held for `hold_timeout`.
  absl::Duration hold_timeout =
      absl::Seconds(480);            // Also: how long a pull waits for its prefill, and an end is remembered.
  size_t transfers_max = 1'000'000;  // Placeholders included.
  size_t waiters_max = 1'000'000;
  size_t remembered_max = 100'000;
};

// One request of one pull that waits for its prefill; the owner chooses the ids.
using WaiterId = Id<struct WaiterIdTag, uint64_t>;
struct HandoffWaiter {
  std::string transfer_id;
  WaiterId waiter;
  friend bool operator==(const HandoffWaiter&, const HandoffWaiter&) = default;
};

// A decoder's worker; a retry is the same consumer, whatever session carries it.
struct HandoffConsumer {
  std::string engine;
  int64_t tp_rank = 0;
  int64_t pp_rank = 0;
  friend bool operator==(const HandoffConsumer&, const HandoffConsumer&) = default;
};

using HandoffBlocks = std::vector<std::vector<int64_t>>;

class HandoffLeases {
 public:
  enum class PullState { kReady, kWaiting, kEnded, kFull };
  struct PullAnswer {
    PullState state;
    std::optional<HandoffEnd> end;  // For kEnded.
  };
  struct ScanResult {
    std::vector<std::string> expired_requests;  // P's request ids, whose blocks are free now.
    std::vector<HandoffWaiter> timed_out;       // Their prefill did not end in time.
  };

  // InvalidArgument: a duration that is not finite and above 0, a maximum of 0.
  static absl::StatusOr<HandoffLeases> Create(const HandoffOptions& options);

  // The prefill of `request_id` has begun; again after a preemption changes nothing. An earlier end of the id is
  // forgotten. InvalidArgument when another request has this transfer id (n > 1, a list of prompts): that one cannot be
  // handed over. ResourceExhausted at `transfers_max`.
  absl::Status Announce(std::string_view transfer_id, std::string_view request_id);
  // The prefill has ended with these blocks, also none at all: the lease begins. Returns the waiters, who can be served
  // now. FailedPrecondition unless the request announced the id and has not finished; its blocks are then the caller's
  // to free.
  absl::StatusOr<std::vector<WaiterId>> Finish(std::string_view transfer_id, std::string_view request_id,
                                               HandoffBlocks blocks, MonotonicTime now);
  // The prefill has ended without KV (abort, error), or never began. Returns the waiters, who get an error now. No
  // effect on a ready transfer or another request's.
  std::vector<WaiterId> Abandon(std::string_view transfer_id, std::string_view request_id, MonotonicTime now);

  // A pull names the transfer. kWaiting: the waiter is kept for at most `hold_timeout` from now, until Finish, Abandon,
  // Scan or CancelWait gives it back. kReady: BeginSend. kEnded: an error to D at once. kFull: refuse.
  PullAnswer Pull(std::string_view transfer_id, WaiterId waiter, MonotonicTime now);
  void CancelWait(std::string_view transfer_id, WaiterId waiter);

  // The blocks of a ready transfer, valid until the next call that is not const; null for any other.
  const HandoffBlocks* FindBlocks(std::string_view transfer_id) const;
  // A send to one of `consumers_needed` (at least 1; the first call decides) begins. False: the transfer is not ready,
  // or gone.
  bool BeginSend(std::string_view transfer_id, int64_t consumers_needed);
  // Pairs with each BeginSend that was true. `written`: the consumer has its bytes, or wanted none. Returns P's request
  // id when that was the last of the consumers: the blocks are free.
  std::optional<std::string> EndSend(std::string_view transfer_id, const HandoffConsumer& consumer, bool written,
                                     MonotonicTime now);

  // D still wants these. Returns those that are not held, for D to give up. FailedPrecondition when the lease is off
  // here.
  absl::StatusOr<std::vector<std::string>> Renew(std::span<const std::string> transfer_ids, MonotonicTime now);

  // Every entry: what has passed its deadline is freed, remembered, and returned.
  ScanResult Scan(MonotonicTime now);

  size_t num_transfers() const { return by_id_.size(); }
  size_t num_waiters() const { return num_waiters_; }
  size_t num_remembered() const { return ended_.size(); }

 private:
  struct Waiting {
    WaiterId waiter;
    MonotonicTime deadline;
  };
  struct Entry {
    std::string transfer_id;
    std::string request_id;  // Empty: a placeholder.
    bool ready = false;
    HandoffBlocks blocks;
    MonotonicTime deadline = MonotonicTime::Max();  // Of the lease; Max until ready.
    std::vector<Waiting> waiting;                   // Earliest deadline first.
    int64_t consumers_needed = 0;
    std::vector<HandoffConsumer> served;
    int64_t sends_running = 0;
  };
  struct TextHash {  // Finds by a view without making a string.
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  static constexpr size_t kNoSlot = SIZE_MAX;

  explicit HandoffLeases(const HandoffOptions& options)
      : options_(options), ended_(options.hold_timeout, options.remembered_max) {}
  size_t FindSlot(std::string_view transfer_id) const;
  size_t AddSlot(std::string_view transfer_id);
  void DropSlot(size_t slot);
  void UpdateDue(size_t slot);
  std::vector<WaiterId> TakeWaiters(Entry& entry);
  void TakeTimedOut(Entry& entry, MonotonicTime now, std::vector<HandoffWaiter>& timed_out);

  HandoffOptions options_;
  RememberedEnds ended_;
  // The scan reads `due_` alone, 8 bytes a slot, and looks at an entry only when its time has come.
  std::vector<MonotonicTime> due_;  // Of the slot: deadline or first waiter's deadline; Max: nothing can expire.
  std::vector<Entry> entries_;
  std::vector<size_t> free_slots_;
  std::unordered_map<std::string, size_t, TextHash, std::equal_to<>> by_id_;
  size_t num_waiters_ = 0;
};

}  // namespace tenure::pd
