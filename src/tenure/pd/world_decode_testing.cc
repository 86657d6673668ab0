#include "tenure/pd/world_decode_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

constexpr int64_t kBlocks = 129;
constexpr int64_t kScheduler = -1;
constexpr absl::Duration kStep = absl::Milliseconds(20);
constexpr absl::Duration kTick = absl::Milliseconds(250);
const char* const kBootstrap = "http://b";

uint64_t NumberOf(const std::string& request_id) { return std::strtoull(request_id.c_str() + 1, nullptr, 10); }

}  // namespace

WorldDecode::WorldDecode(World& world, Send send, Listens listens)
    : world_(world), send_(std::move(send)), listens_(std::move(listens)) {
  for (int64_t rank = 0; rank < world.options.decode_tp; ++rank) workers_.push_back(std::make_unique<Worker>());
  StartWorkers();
}

void WorldDecode::StartWorkers() {
  memories_.push_back(std::make_shared<WorldMemory>(world_.options.decode_tp, kBlocks));
  for (int64_t rank = 0; rank < world_.options.decode_tp; ++rank) {
    ConsumerOptions options;
    options.worker = TinyPull(memories_.back()->Layout(rank), std::to_string(rank), absl::ToDoubleSeconds(kWorldLease));
    options.worker.remote_port = static_cast<int64_t>(memories_.size()) - 1;
    options.late_write_max = kWorldLateWrite;
    auto consumer = Consumer::Create(options);
    TENURE_CHECK(consumer.ok());
    workers_[static_cast<size_t>(rank)]->consumer = std::make_unique<Consumer>(*std::move(consumer));
    TickLater(rank);
  }
  auto schedule = RenewalSchedule::Create({kWorldLease}, world_.loop.now());
  auto renewer = Renewer::Create({kWorldLease});
  TENURE_CHECK(schedule.ok() && renewer.ok());
  schedule_ = std::make_unique<RenewalSchedule>(*std::move(schedule));
  renewer_ = std::make_unique<Renewer>(*std::move(renewer));
  TickLater(kScheduler);
}

WorldProcess& WorldDecode::ProcessOf(int64_t rank) {
  return rank == kScheduler ? scheduler_ : workers_[static_cast<size_t>(rank)]->process;
}

void WorldDecode::TickLater(int64_t rank) {
  world_.loop.After(kTick, ProcessOf(rank), [this, rank] {
    const MonotonicTime now = world_.loop.now();
    if (rank != kScheduler) {
      Consumer& consumer = *workers_[static_cast<size_t>(rank)]->consumer;
      if (consumer.NextTick() <= now) CarryOut(rank, consumer.Tick(now));
    } else {
      schedule_->Stepped(now);
      if (renewer_->NextTick() <= now) CarryOut(renewer_->Tick(now));
      if (schedule_->NextRound() <= now) CarryOut(renewer_->Renew(schedule_->TakeRound(now).batches, now));
    }
    TickLater(rank);
  });
}

void WorldDecode::Arrive(const WorldRequest& request) {
  world_.loop.After(world_.Milliseconds(0, 50), scheduler_, [this, request] {
    Running running;
    running.request = request;
    running.deadline =
        world_.loop.now() + (world_.FaultyChance(0.2) ? world_.Milliseconds(5000, 60'000) : kWorldPatience);
    running.aborted = world_.FaultyChance(0.03);
    running_[request.number] = running;
    const absl::Status tracked = schedule_->Track(request.decode_id(), request.transfer_id(), "p", running.deadline);
    if (!tracked.ok()) world_.Violated(std::string(Message(tracked)));
    renewer_->Locate("p", kBootstrap);
    const absl::Duration queued =
        world_.FaultyChance(0.15) ? world_.Milliseconds(5000, 80'000) : world_.Milliseconds(0, 500);
    world_.loop.After(queued, scheduler_, [this, number = request.number] { TryStart(number); });
  });
}

void WorldDecode::TryStart(uint64_t number) {
  const auto found = running_.find(number);
  if (found == running_.end()) return;  // P has said that it is gone.
  Running& running = found->second;
  const bool late = running.deadline <= world_.loop.now();
  if (late || running.aborted) {
    SendPull(running, {});
    return Forget(number, late ? world_.report.failed : world_.report.aborted);
  }
  const int64_t wanted = running.request.num_blocks - running.request.first;
  auto blocks = memories_.back()->Allocate(wanted);
  CheckMemory();
  if (!blocks) return world_.loop.After(absl::Milliseconds(200), scheduler_, [this, number] { TryStart(number); });
  running.blocks = *std::move(blocks);
  running.pulled = true;
  running.aborted = world_.FaultyChance(0.03);  // Some time while it loads; nothing changes until it has settled.
  SendPull(running, {running.blocks});
}

void WorldDecode::SendPull(const Running& running, std::vector<WorldMemory::Blocks> blocks) {
  const WorldRequest& request = running.request;
  if (orders_.empty()) world_.loop.After(kStep, scheduler_, [this] { SendOrders(); });
  orders_.push_back({request.decode_id(), request.transfer_id(), "p", kBootstrap, std::move(blocks),
                     running.deadline - world_.loop.now()});
}

void WorldDecode::SendOrders() {
  const std::vector<PullOrder> orders = std::exchange(orders_, {});
  for (int64_t rank = 0; rank < world_.options.decode_tp; ++rank) {
    Worker& worker = *workers_[static_cast<size_t>(rank)];
    world_.loop.After(kStep, worker.process, [this, rank, &worker, orders] {
      CarryOut(rank, worker.consumer->StartPulls(orders, world_.loop.now()));
    });
  }
}

void WorldDecode::CarryOut(int64_t rank, const ConsumerActions& actions) {
  for (const std::string& address : actions.queries) Query(rank, address);
  SendMessages(rank, actions.sends);
  const auto tell = [&](const std::string& request_id, auto act) {
    world_.loop.After(absl::ZeroDuration(), scheduler_, [this, request_id, act] {
      const auto found = running_.find(NumberOf(request_id));
      if (found == running_.end()) return world_.Violated(request_id + " has an outcome but does not run");
      act(found->second);
    });
  };
  for (const FailingPull& failing : actions.failing) {
    tell(failing.request_id, [this](Running& running) { Failing(running); });
  }
  for (const std::string& request_id : actions.received) {
    tell(request_id, [this, rank](Running& running) { Settled(rank, running, ""); });
  }
  for (const FailedPull& failed : actions.failed) {
    tell(failed.request_id, [this, rank, error = failed.error](Running& running) { Settled(rank, running, error); });
  }
  for (const std::string& address : actions.looks) {
    if (listens_(address)) continue;
    CarryOut(rank, workers_[static_cast<size_t>(rank)]->consumer->OnWorkerGone(address, world_.loop.now()));
  }
}

void WorldDecode::CarryOut(const RenewerActions& actions) {
  for (const std::string& address : actions.queries) Query(kScheduler, address);
  SendMessages(kScheduler, actions.sends);
  for (const RenewerActions::Gone& gone : actions.gone) {
    const auto found = running_.find(NumberOf(gone.transfer_id));
    if (found == running_.end() || found->second.pulled) continue;
    if (found->second.request.must_succeed) world_.Violated(gone.transfer_id + " is gone, and nothing was wrong");
    Forget(found->first, world_.report.failed);
  }
}

void WorldDecode::SendMessages(int64_t rank, const std::vector<ChannelMessage>& sends) {
  const uint64_t life = scheduler_.life;
  for (const ChannelMessage& message : sends) {
    const ChannelId channel = message.channel;
    const bool arrives = send_(message.address, fmt::format("{} {} {}", rank, life, channel.value()), message.bytes);
    // Nobody listens there, or the connection breaks and P does not know.
    const bool breaks = arrives ? world_.FaultyChance(0.02) : world_.random.Chance(0.5);
    if (!breaks) continue;
    world_.loop.After(world_.Milliseconds(10, 5000), ProcessOf(rank), [this, rank, channel] {
      const MonotonicTime now = world_.loop.now();
      if (rank == kScheduler) return CarryOut(renewer_->OnChannelFailed(channel, "it broke", now));
      CarryOut(rank, workers_[static_cast<size_t>(rank)]->consumer->OnChannelFailed(channel, "it broke", now));
    });
  }
}

void WorldDecode::Query(int64_t rank, const std::string& address) {
  world_.loop.After(world_.Milliseconds(1, 20), ProcessOf(rank), [this, rank, address] {
    absl::StatusOr<std::map<int64_t, RegisteredEngine>> answer = world_.registry.engines();
    if (world_.FaultyChance(0.03)) answer = Unavailable("no answer");
    const MonotonicTime now = world_.loop.now();
    if (rank == kScheduler) return CarryOut(renewer_->OnQueryAnswer(address, answer, now));
    CarryOut(rank, workers_[static_cast<size_t>(rank)]->consumer->OnQueryAnswer(address, answer, now));
  });
}

void WorldDecode::Receive(const std::string& peer, const std::string& bytes) {
  char* at = nullptr;
  const int64_t rank = std::strtoll(peer.c_str(), &at, 10);
  const uint64_t life = std::strtoull(at, &at, 10);
  const ChannelId channel(std::strtoull(at, nullptr, 10));
  if (life != scheduler_.life) return;
  world_.Carry(ProcessOf(rank), [this, rank, channel, bytes] {
    const MonotonicTime now = world_.loop.now();
    if (rank == kScheduler) return CarryOut(renewer_->OnReply(channel, bytes, now));
    CarryOut(rank, workers_[static_cast<size_t>(rank)]->consumer->OnReply(channel, bytes, now));
  });
}

void WorldDecode::Failing(Running& running) {
  CheckInTime(running);
  if (world_.options.canary == WorldCanary::kFreeWhenFailing) Free(running);
}

void WorldDecode::Settled(int64_t rank, Running& running, const std::string& error) {
  const WorldRequest& request = running.request;
  if (error.empty()) CheckInTime(running);
  world_.Note(request.number + (error.empty() ? 0 : 1'000'000));
  if (!running.settled.emplace(rank, error).second) return world_.Violated(request.decode_id() + " has two outcomes");
  if (static_cast<int64_t>(running.settled.size()) < world_.options.decode_tp) return;
  schedule_->Stop(request.decode_id());
  std::string first_error;
  for (const auto& [of_rank, text] : running.settled) {
    if (first_error.empty()) first_error = text;
  }
  if (!first_error.empty()) {
    if (request.must_succeed) world_.Violated(request.decode_id() + " fails, and nothing was wrong: " + first_error);
    Free(running);
    return Forget(request.number, running.aborted ? world_.report.aborted : world_.report.failed);
  }
  CheckContent(running);
  // Decodes from it for a while; a write that comes late would show in the end.
  world_.loop.After(running.aborted ? absl::ZeroDuration() : world_.Milliseconds(50, 3000), scheduler_,
                    [this, number = request.number] {
                      Running& decoded = running_.at(number);
                      CheckContent(decoded);
                      Free(decoded);
                      Forget(number, decoded.aborted ? world_.report.aborted : world_.report.received);
                    });
}

void WorldDecode::CheckInTime(const Running& running) {
  // Its worker and the scheduler may each stand still once.
  if (world_.loop.now() <= running.deadline + 2 * kWorldStallMax + absl::Seconds(1)) return;
  world_.Violated(running.request.decode_id() + " hears of its outcome too late");
}

void WorldDecode::CheckContent(const Running& running) {
  if (memories_.back()->Holds(running.blocks, running.request.number, running.request.first)) return;
  world_.Violated(running.request.decode_id() + " has bytes that are not its own");
}

void WorldDecode::CheckMemory() {
  const std::string& problem = memories_.back()->problem();
  if (!problem.empty()) world_.Violated("D: " + problem);
}

void WorldDecode::Free(Running& running) {
  memories_.back()->Free(std::exchange(running.blocks, {}));
  CheckMemory();
}

void WorldDecode::Forget(uint64_t number, int64_t& counter) {
  ++counter;
  schedule_->Stop(running_.at(number).request.decode_id());
  running_.erase(number);
}

WorldEnd WorldDecode::EndOf(const Pull& pull) {
  const int64_t rank = std::strtoll(pull.remote_hostname.c_str(), nullptr, 10);
  const auto life = static_cast<uint64_t>(pull.remote_port);
  return {memories_[life], &ProcessOf(rank), life};
}

void WorldDecode::Stall(int64_t rank, absl::Duration time) { ProcessOf(rank).still_until = world_.loop.now() + time; }

void WorldDecode::StartAgain() {
  world_.report.lost += static_cast<int64_t>(running_.size());
  running_.clear();
  orders_.clear();
  ++scheduler_.life;
  scheduler_.still_until = MonotonicTime::Min();
  for (const auto& worker : workers_) {
    worker->process.life = scheduler_.life;
    worker->process.still_until = MonotonicTime::Min();
  }
  StartWorkers();
}

void WorldDecode::ExpectIdle() {
  CheckMemory();
  if (!running_.empty()) world_.Violated(fmt::format("D: {} requests never end", running_.size()));
  if (memories_.back()->num_free() != memories_.back()->num_blocks()) {
    world_.Violated(
        fmt::format("D: {} blocks are still held", memories_.back()->num_blocks() - memories_.back()->num_free()));
  }
  for (const auto& worker : workers_) {
    if (worker->consumer->num_requests() + worker->consumer->num_channels() == 0) continue;
    world_.Violated(fmt::format("D: {} pulls, {} channels are left", worker->consumer->num_requests(),
                                worker->consumer->num_channels()));
  }
}

}  // namespace tenure::pd
