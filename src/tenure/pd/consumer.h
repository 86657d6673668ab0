// The decode worker's half of the side channel: pulls out, outcomes in (pd_protocol spec §2, §3, §5, §9).
//
// A pull goes to every prefill worker whose KV this worker needs part of, in one message a worker for all requests of
// an engine in a step. A request has ended when all of them have settled it: its KV is then here (`received`) or it has
// failed (`failed`), and in both cases nothing writes into its blocks any more. Before a failure that waits for that,
// `failing` tells that it will come. A worker without an answer by the request's deadline may still write: the blocks
// are held until the message's own deadline and `late_write_max` have passed; or `late_write_max` from when the owner
// has seen that the worker's process has ended. Where the workers listen is asked of the bootstrap server once an
// engine, and again after a worker did not answer. Pulls from an engine with another lease fail at once, and go out as
// releases: P hears of it by D's lease in them, and holds nothing for D.
//
// A state machine: events in, actions out; the owner passes `now`, which never runs back, carries out the actions, and
// calls Tick by NextTick. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/pd/bootstrap_registry.h"
#include "tenure/pd/channel.h"
#include "tenure/pd/engine_directory.h"
#include "tenure/pd/lease_agreement.h"
#include "tenure/pd/pull.h"
#include "tenure/pd/reply.h"
#include "tenure/pd/step_orders.h"
#include "tenure/pd/tp_topology.h"

namespace tenure::pd {

struct ConsumerOptions {
  // What each pull says of this worker: ranks, layout, lease, transport; without requests.
  Pull worker;
  // How long after D has stopped to wait for an answer a write may land: how long a message travels, how long P may
  // stand still between its look at the clock and its write, and that write.
  absl::Duration late_write_max = absl::Seconds(60);
  absl::Duration partial_retry = absl::Seconds(1);  // An engine whose workers are not all registered is asked for.
  absl::Duration look_interval = absl::Seconds(1);  // Between two looks whether a lost worker's process has ended.
  absl::Duration release_timeout_min = absl::Seconds(30);  // A release-only pull is tried this long at least.
  size_t requests_max = 100'000;                           // Not ended.
  size_t engines_max = 4096;                               // Whose workers are remembered.
};

struct FailedPull {
  std::string request_id;
  std::string error;
  std::vector<std::vector<int64_t>> blocks;
};
struct FailingPull {
  std::string request_id;
  std::string error;
};

struct ConsumerActions {
  std::vector<std::string> queries;  // Bootstrap addresses; each answered by one OnQueryAnswer.
  std::vector<ChannelMessage> sends;
  std::vector<ChannelId> closes;
  // D's ids. Of each request that has blocks one of the first two, once; release-only pulls are in none.
  std::vector<std::string> received;
  std::vector<FailedPull> failed;
  std::vector<FailingPull> failing;  // Will be in `failed` later; at most once each.
  std::vector<std::string> looks;    // Addresses of lost workers: OnWorkerGone for those that have ended.
  std::vector<LeaseMismatch> mismatches;
  std::vector<std::string> warnings;  // For a log, paced by the owner.
};

// Since the last TakeStats.
struct ConsumerStats {
  int64_t failed_receives = 0;  // num_failed_recvs: requests.
  int64_t received = 0;
  int64_t pulls = 0;  // Messages.
  int64_t failed_queries = 0;
  int64_t lost_channels = 0;  // No answer in time, or the connection broke.
  int64_t ended_workers = 0;  // Lost ones whose process has been seen to have ended.
  int64_t malformed_replies = 0;
  int64_t lease_mismatches = 0;
};

class Consumer {
 public:
  // InvalidArgument: an option, ranks that cannot be, a pull that cannot be encoded.
  static absl::StatusOr<Consumer> Create(const ConsumerOptions& options);

  // One step's pulls. A request that has not ended yet is not pulled twice.
  ConsumerActions StartPulls(const std::vector<PullOrder>& orders, MonotonicTime now);

  // By dp_rank, as BootstrapRegistry has it; an answer that nobody asked for is ignored.
  ConsumerActions OnQueryAnswer(std::string_view bootstrap_address,
                                const absl::StatusOr<std::map<int64_t, RegisteredEngine>>& answer, MonotonicTime now);
  // Any bytes; a channel that is closed or unknown is ignored.
  ConsumerActions OnReply(ChannelId channel, std::string_view message, MonotonicTime now);
  // The message did not leave, so nothing can write for it. Needs no close.
  ConsumerActions OnNotSent(ChannelId channel, std::string_view why, MonotonicTime now);
  // The connection broke after it had left. Counts as no answer, and needs no close.
  ConsumerActions OnChannelFailed(ChannelId channel, std::string_view why, MonotonicTime now);

  // Of a lost worker: nobody listens at its address any more, so its process begins no write. Others are ignored.
  ConsumerActions OnWorkerGone(std::string_view address, MonotonicTime now);

  ConsumerActions Tick(MonotonicTime now);
  // Max: nothing to do.
  MonotonicTime NextTick() const;

  ConsumerStats TakeStats();

  size_t num_requests() const { return requests_.size(); }  // Held ones and release-only pulls included.
  size_t num_channels() const { return channels_.size(); }

 private:
  using Serial = uint64_t;  // Of a request; ids may come again.

  struct Request {
    PullOrder order;
    std::vector<ChannelId> open;                   // That have not settled it.
    std::optional<std::string> error;              // The first.
    bool told = false;                             // In `failing`.
    MonotonicTime safe_at = MonotonicTime::Min();  // A write may land until then;
    std::map<std::string, MonotonicTime> lost;     // or until then, of a lost worker by its address.
    MonotonicTime timer;                           // Its deadline; SafeAt once all have settled it.
  };
  struct Channel {
    std::string engine_id;
    std::string address;
    uint64_t generation;  // Of the engine's entry in the directory.
    MonotonicTime deadline;
    absl::Duration hold_after_error;  // A stock P reports a failed write that may still land.
    std::map<std::string, Serial, std::less<>> open;
  };
  struct Asking {  // A bootstrap server.
    bool in_flight = true;
    MonotonicTime retry_at;
    std::vector<Serial> requests;
  };

  Consumer(const ConsumerOptions& options, WorkerRank rank);

  absl::Status CheckOrder(const PullOrder& order) const;
  Serial AddRequest(const PullOrder& order, MonotonicTime now);
  void Ask(const std::string& address, Serial serial, ConsumerActions& actions);
  void SendPulls(const std::string& engine_id, const std::vector<Serial>& serials, MonotonicTime now,
                 ConsumerActions& actions);
  absl::Status CheckLeases(const EngineDirectory::Engine& engine, const std::vector<Serial>& serials,
                           ConsumerActions& actions);
  // The channels' addresses of the workers to pull from.
  absl::StatusOr<std::vector<std::string>> FindWorkers(const EngineDirectory::Engine& engine) const;
  // The number of requests, from the front, that are in the message.
  absl::StatusOr<size_t> SendMessage(const EngineDirectory::Engine& engine, const std::vector<std::string>& addresses,
                                     std::span<const Serial> serials, MonotonicTime now, ConsumerActions& actions);
  void ApplyReply(Channel& channel, ChannelId id, const Reply& reply, MonotonicTime now, ConsumerActions& actions);
  // Nothing more is to be heard from it.
  // What was asked over it may be written for `late_write_for` after its deadline; none: not at all.
  void LoseChannel(ChannelId id, std::string_view why, std::optional<absl::Duration> late_write_for, MonotonicTime now,
                   ConsumerActions& actions);
  // A write of the channel's worker may land in the request's blocks until `safe_at`.
  void Hold(Request& request, const Channel& channel, MonotonicTime safe_at, MonotonicTime now,
            ConsumerActions& actions);
  static MonotonicTime SafeAt(const Request& request);
  void LookAgain(MonotonicTime now, ConsumerActions& actions);
  void LoseOldChannels(const std::string& engine_id, MonotonicTime now, ConsumerActions& actions);

  void Settle(Serial serial, ChannelId channel, MonotonicTime safe_at, MonotonicTime now, ConsumerActions& actions);
  void SetError(Request& request, std::string_view error);
  void Refuse(Serial serial, std::string_view error, MonotonicTime now, ConsumerActions& actions);
  // Before it is sent: has failed, and is from now on a pull that only releases.
  void FailAndRelease(Serial serial, std::string_view error, MonotonicTime now, ConsumerActions& actions);
  void GiveUp(Serial serial, MonotonicTime now, ConsumerActions& actions);
  // All have settled it.
  void Conclude(Serial serial, MonotonicTime now, ConsumerActions& actions);
  void TellFailing(Request& request, ConsumerActions& actions);
  void SetTimer(Serial serial, MonotonicTime at);

  ConsumerOptions options_;
  WorkerRank rank_;
  EngineDirectory engines_;
  std::map<std::string, Asking, std::less<>> asking_;
  Serial last_serial_ = 0;
  std::map<Serial, Request> requests_;
  std::unordered_map<std::string, Serial> by_id_;      // Without release-only pulls.
  std::set<std::pair<MonotonicTime, Serial>> timers_;  // One a request.
  std::set<std::string, std::less<>> watched_;         // Addresses of lost workers that hold requests.
  MonotonicTime next_look_ = MonotonicTime::Max();
  ChannelId last_channel_;
  std::map<ChannelId, Channel> channels_;
  ConsumerStats stats_;
};

}  // namespace tenure::pd
