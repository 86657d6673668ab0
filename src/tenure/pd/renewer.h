// Carries D's renewals to every worker of a prefill engine (pd_protocol spec §6, edges 34 to 38).
//
// RenewalSchedule says what is due; this says to whom, and understands the answers. A worker has one message open at a
// time, so a hung one costs one channel; what it has not answered after a sixth of the lease is dropped, and the next
// round is the retry. One warning says that an engine cannot be renewed, and one that it can again, however many rounds
// lie between. An engine that refuses renewals gets no more of them, and one warning says so. A transfer that a
// worker has held and holds no more is `gone`: whoever still queues for it can be told at once.
//
// A state machine: events in, actions out; the owner passes `now`, which never runs back, carries out the actions, and
// calls Tick by NextTick. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
#include "tenure/pd/renewal_schedule.h"

namespace tenure::pd {

struct RenewerOptions {
  absl::Duration lease;       // The same as P's and the schedule's.
  size_t engines_max = 4096;  // Whose workers are remembered.
};

struct RenewerActions {
  struct Gone {
    std::string engine_id;
    std::string transfer_id;
  };
  std::vector<std::string> queries;  // Bootstrap addresses; each answered by one OnQueryAnswer.
  std::vector<ChannelMessage> sends;
  std::vector<ChannelId> closes;
  std::vector<Gone> gone;             // Not for requests whose pull is under way: being served is a way to go, too.
  std::vector<std::string> warnings;  // For a log.
};

// Since the last TakeStats.
struct RenewerStats {
  int64_t sent = 0;  // Messages.
  int64_t lost = 0;  // Of those: without an answer, or with one that was none.
  int64_t failed_queries = 0;
  int64_t refusing_engines = 0;  // They get no more; those with another lease among them.
  int64_t lease_mismatches = 0;
  int64_t gone_transfers = 0;
};

class Renewer {
 public:
  // InvalidArgument: a lease that is not finite and above 0.
  static absl::StatusOr<Renewer> Create(const RenewerOptions& options);

  // Where to ask for the workers of `engine_id`; the last address said counts.
  void Locate(std::string_view engine_id, std::string_view bootstrap_address);

  // A whole round. What an engine's workers have not been sent of the last round is dropped.
  RenewerActions Renew(const std::vector<RenewalSchedule::Batch>& batches, MonotonicTime now);

  RenewerActions OnQueryAnswer(std::string_view bootstrap_address,
                               const absl::StatusOr<std::map<int64_t, RegisteredEngine>>& answer, MonotonicTime now);
  // Any bytes; a channel that is closed or unknown is ignored.
  RenewerActions OnReply(ChannelId channel, std::string_view message, MonotonicTime now);
  RenewerActions OnChannelFailed(ChannelId channel, std::string_view why, MonotonicTime now);
  RenewerActions Tick(MonotonicTime now);
  // Max: nothing to do.
  MonotonicTime NextTick() const;

  RenewerStats TakeStats();

  size_t num_channels() const { return channels_.size(); }

 private:
  using Rank = std::pair<int64_t, int64_t>;  // Tensor, pipeline.
  using Names = std::set<std::string, std::less<>>;

  struct Worker {
    std::string address;
    std::optional<ChannelId> channel;  // Open.
    Names held;                        // What it said to hold, of what is renewed.
    size_t next_batch = 0;             // Goes round, so that a slow worker gets each batch some time.
    size_t unsent = 0;                 // Batches of this round.
  };
  struct Engine {
    std::string bootstrap_address;
    std::vector<std::vector<std::string>> round;
    std::map<Rank, Worker> workers;
    Names gone;  // Of what is renewed; told.
    bool refuses = false;
    bool unreached = false;  // A warning has said so, and no answer has come since.
    std::set<Rank> silent;   // Workers without an answer to the last message.
  };
  struct Channel {
    std::string engine_id;
    Rank rank;
    uint64_t generation;  // Of the engine's entry in the directory.
    std::vector<std::string> transfer_ids;
    MonotonicTime deadline;
  };

  explicit Renewer(const RenewerOptions& options) : options_(options), directory_(options.engines_max) {}
  void TakeRound(const std::vector<RenewalSchedule::Batch>& batches);
  void StartRound(const std::string& engine_id, Engine& engine, MonotonicTime now, RenewerActions& actions);
  void SendNext(const std::string& engine_id, Engine& engine, Rank rank, MonotonicTime now, RenewerActions& actions);
  void ApplyHeld(const Channel& channel, const std::vector<std::string>& unknown, RenewerActions& actions);
  void Refuse(const std::string& engine_id, std::string_view why, RenewerActions& actions);
  void Lose(ChannelId id, std::string_view why, RenewerActions& actions);
  // Says why once until Answered. A worker that answers does not end it for another that does not.
  void WarnOnce(Engine& engine, std::string warning, RenewerActions& actions);
  void Answered(const Channel& channel, RenewerActions& actions);
  // The channel is no longer open.
  Channel Take(ChannelId id);
  // Null: its engine has been forgotten.
  Worker* FindWorker(const Channel& channel);

  RenewerOptions options_;
  EngineDirectory directory_;
  std::map<std::string, Engine, std::less<>> engines_;
  Names asking_;  // Bootstrap servers.
  ChannelId last_channel_;
  std::map<ChannelId, Channel> channels_;
  RenewerStats stats_;
};

}  // namespace tenure::pd
