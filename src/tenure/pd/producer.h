// The prefill worker's half of the side channel: pulls and renewals in, writes and replies out (pd_protocol spec §3,
// §5, §6, §9).
//
// A pull names requests whose prefills may not have ended. Nothing is occupied while they have not: a request waits as
// an entry in HandoffLeases, and only a write that runs needs a transport. Whatever becomes ready at once for one pull
// goes out as one write. A request's error is its own; what is wrong with a whole message (a layout that does not fit,
// other leases, bytes that are no message) is answered with ERROR. A renewal is answered in the call that brings it.
//
// A state machine: events in, actions out; the owner passes `now`, which never runs back, carries out the actions in
// their order, and calls Scan by NextScan. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/pd/handoff_leases.h"
#include "tenure/pd/lease_agreement.h"
#include "tenure/pd/plan_cache.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/step_orders.h"
#include "tenure/pd/write_piece.h"
#include "tenure/pd/write_result.h"

namespace tenure::pd {

struct ProducerOptions {
  HandoffOptions handoff;
  // Of one write, and a nanosecond a byte more. A pull that says how long D waits may leave less.
  absl::Duration write_timeout = absl::Seconds(30);
  // How long after a write has failed unsettled its bytes may still land: the blocks of both sides are held that long.
  absl::Duration late_write_max = absl::Seconds(60);
  size_t pulls_max = 65'536;         // With requests that wait or are written.
  size_t layouts_max = 256;          // Decode workers whose write plans are kept.
  size_t peers_remembered = 65'536;  // Whose pulls have been answered; a copy of such a message is dropped.
  size_t write_pieces_max = 1 << 20;
  size_t write_samples_max = 4096;  // Between two TakeStats; further writes are counted only.
};

using WriteId = Id<struct WriteIdTag, uint64_t>;

struct HandoffWrite {
  WriteId id;
  std::shared_ptr<const Pull> peer;  // D's worker, its transport among the rest; without requests.
  std::vector<WritePiece> pieces;    // At least one.
  MonotonicTime deadline;
};

struct PeerReply {
  std::string peer;
  std::string bytes;
};

struct ProducerActions {
  std::vector<PeerReply> replies;
  std::vector<HandoffWrite> writes;            // Each answered by one OnWriteDone.
  std::vector<std::string> finished_requests;  // P's ids, each once: the worker needs their blocks no more.
  std::vector<LeaseMismatch> mismatches;
  std::vector<std::string> warnings;  // For a log, paced by the owner.
};

struct WriteSample {
  absl::Duration duration;
  int64_t bytes;
  int64_t pieces;
};

// Since the last TakeStats. The first four are stock's keys (pd_protocol spec §5).
struct ProducerStats {
  std::vector<WriteSample> writes;  // transfer_duration, bytes_transferred, num_descriptors.
  int64_t failed_transfers = 0;     // num_failed_transfers.
  int64_t expired_requests = 0;     // num_kv_expired_reqs.
  int64_t unsampled_writes = 0;     // Beyond write_samples_max.
  int64_t pulls = 0;                // Messages, the copies not counted.
  int64_t renewals = 0;             // Messages.
  int64_t late_pulls = 0;           // Requests whose transfer had ended.
  int64_t timed_out_pulls = 0;      // Requests whose prefill did not end in time.
  int64_t refused_requests = 0;     // For a reason of their own: blocks that do not fit, a limit.
  int64_t malformed_messages = 0;
  int64_t repeated_messages = 0;
  int64_t refused_pulls = 0;  // Whole messages: layout, pairing, a limit.
  int64_t lease_mismatches = 0;
  int64_t overdue_writes = 0;  // Without a result past their deadline.
};

class Producer {
 public:
  // InvalidArgument: an option, the layout or the traits.
  static absl::StatusOr<Producer> Create(const ProducerOptions& options, KvLayout layout, KvTraits traits);

  // What P's scheduler says in a step: aborted, announced, finished, in that order; `pulls` are not read. A request
  // whose transfer id is another's cannot be handed over and is in `finished_requests` once it has finished. A request
  // finishes once.
  ProducerActions RecordStep(const StepOrders& orders, MonotonicTime now);

  // `peer` identifies the connection, and the answers go there; a connection carries one pull, so a second one is a
  // copy. Any bytes.
  ProducerActions OnMessage(std::string_view peer, std::string_view message, MonotonicTime now);

  // An unknown id is ignored.
  ProducerActions OnWriteDone(WriteId write, const WriteResult& result, MonotonicTime now);

  // Frees what has expired, answers who has waited too long.
  ProducerActions Scan(MonotonicTime now);
  // A sixth of the lease, at most a second, after the last Scan.
  MonotonicTime NextScan() const { return next_scan_; }

  ProducerStats TakeStats();

  size_t num_transfers() const { return leases_.num_transfers(); }
  size_t num_pulls() const { return pulls_.size(); }
  size_t num_writes() const { return writes_.size(); }

 private:
  using PullId = uint64_t;
  using RequestIndex = uint32_t;  // Into PullInProgress::requests.

  struct PullInProgress {
    std::string peer;
    std::shared_ptr<const PeerLayout> layout;
    std::vector<PullRequest> requests;
    MonotonicTime answer_by = MonotonicTime::Max();  // D listens no longer.
    size_t unanswered = 0;
  };
  // What one event brings for one pull.
  struct Batch {
    std::vector<RequestIndex> ready;
    std::vector<std::string> ok;
    std::vector<std::string> failed;
    std::string errors;
  };
  using Batches = std::map<PullId, Batch>;
  struct WriteInProgress {
    PullId pull;
    std::vector<RequestIndex> requests;
    MonotonicTime started;
    MonotonicTime deadline;
    int64_t bytes = 0;
    int64_t pieces = 0;
    bool overdue = false;
  };
  struct OpenWrite {  // Not started.
    std::vector<RequestIndex> requests;
    std::vector<WritePiece> pieces;
  };
  struct UnsettledWrite {
    MonotonicTime until;
    WriteInProgress write;
    absl::Status status;
  };

  Producer(const ProducerOptions& options, HandoffLeases leases, PlanCache plans);

  void AnswerRenewal(std::string_view peer, std::string_view message, MonotonicTime now, ProducerActions& actions);
  // The status of the whole message.
  absl::Status CheckPull(std::string_view peer, const Pull& pull, const PeerLayout& layout, ProducerActions& actions);
  void StartPull(std::string_view peer, Pull pull, MonotonicTime now, ProducerActions& actions);

  static void Fail(PullInProgress& pull, RequestIndex request, std::string_view error, Batch& batch);
  void FailWaiter(WaiterId waiter, std::string_view error, Batches& batches);
  // Serves what is ready, then answers.
  void Serve(Batches& batches, MonotonicTime now, ProducerActions& actions);
  void ServeRequest(PullId id, RequestIndex request, Batch& batch, OpenWrite& write, MonotonicTime now,
                    ProducerActions& actions);
  void Acknowledge(PullInProgress& pull, RequestIndex request, Batch& batch, MonotonicTime now,
                   ProducerActions& actions);
  void StartWrite(PullId id, OpenWrite& write, MonotonicTime now, ProducerActions& actions);
  void EndWrite(const WriteInProgress& write, const absl::Status& status, MonotonicTime now, ProducerActions& actions);
  void SampleWrite(const WriteInProgress& write, MonotonicTime now);
  void Answer(PullId id, const Batch& batch, ProducerActions& actions);
  void RememberPeer(std::string peer);
  void MarkOverdueWrites(MonotonicTime now, ProducerActions& actions);

  ProducerOptions options_;
  HandoffLeases leases_;
  PlanCache plans_;
  MonotonicTime next_scan_ = MonotonicTime::Min();
  PullId last_pull_ = 0;
  std::map<PullId, PullInProgress> pulls_;
  WriteId last_write_;
  std::map<WriteId, WriteInProgress> writes_;
  std::deque<UnsettledWrite> unsettled_;   // Earliest first.
  std::unordered_set<std::string> peers_;  // Of pulls in progress, and remembered ones.
  std::deque<std::string> remembered_peers_;
  ProducerStats stats_;
};

}  // namespace tenure::pd
