#include "tenure/pd/world_prefill_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

constexpr int64_t kBlocks = 257;
constexpr absl::Duration kStep = absl::Milliseconds(5);
constexpr absl::Duration kClockAhead = absl::Seconds(15);

std::string AddressOf(int64_t rank, uint64_t life) { return fmt::format("tcp://{}.{}:1", rank, life); }

uint64_t NumberOf(const std::string& request_id) { return std::strtoull(request_id.c_str() + 1, nullptr, 10); }

}  // namespace

WorldPrefill::WorldPrefill(World& world, OnReply on_reply, FindDecode find_decode)
    : world_(world), on_reply_(std::move(on_reply)), find_decode_(std::move(find_decode)) {
  for (int64_t rank = 0; rank < world.options.prefill_tp; ++rank) workers_.push_back(std::make_unique<Worker>());
  StartWorkers();
}

void WorldPrefill::StartWorkers() {
  memory_ = std::make_shared<WorldMemory>(world_.options.prefill_tp, kBlocks);
  ProducerOptions options;
  options.handoff.lease = kWorldLease;
  options.handoff.hold_timeout = kWorldHold;
  options.write_timeout = absl::Seconds(10);
  options.late_write_max = kWorldLateWrite;
  for (int64_t rank = 0; rank < world_.options.prefill_tp; ++rank) {
    auto producer = Producer::Create(options, memory_->Layout(rank), TinyTraits());
    TENURE_CHECK(producer.ok());
    Worker& worker = *workers_[static_cast<size_t>(rank)];
    worker.producer = std::make_unique<Producer>(*std::move(producer));
    worker.promised.clear();
    world_.loop.After(world_.faulty ? world_.Milliseconds(0, 3000) : kStep, worker.process,
                      [this, rank] { Register(rank); });
    ScanLater(rank);
  }
}

void WorldPrefill::Register(int64_t rank) {
  const uint64_t life = workers_[static_cast<size_t>(rank)]->process.life;
  WorkerRegistration registration;
  registration.engine_id = "p";
  registration.tp_rank = rank;
  registration.address = AddressOf(rank, life);
  registration.kv_lease_duration = absl::ToDoubleSeconds(kWorldLease);
  registration.incarnation = static_cast<int64_t>(life) + 1;
  registration.tp_size = world_.options.prefill_tp;
  registration.pp_size = 1;
  if (!world_.registry.Register(registration).ok()) world_.Violated("a worker cannot register");
}

void WorldPrefill::Arrive(const WorldRequest& request) {
  if (world_.FaultyChance(0.01)) return;  // The proxy's call is lost.
  world_.loop.After(world_.Milliseconds(0, 20), scheduler_, [this, request] {
    if (workers_.front()->producer == nullptr) return;  // Not up again yet; the call fails.
    if (!world_.FaultyChance(0.01)) return Schedule(request);
    StepOrders orders;
    orders.aborted.push_back({request.prefill_id(), request.transfer_id()});
    Step(orders);
  });
}

void WorldPrefill::Schedule(const WorldRequest& request) {
  auto blocks = memory_->Allocate(request.num_blocks);
  if (!blocks) return world_.loop.After(absl::Milliseconds(100), scheduler_, [this, request] { Schedule(request); });
  running_[request.number] = {request, *std::move(blocks), {}, false};
  StepOrders orders;
  orders.announced.push_back({request.prefill_id(), request.transfer_id()});
  Step(orders);
  const absl::Duration prefill = world_.FaultyChance(0.03)   ? world_.Milliseconds(2000, 60'000)
                                 : world_.random.Chance(0.3) ? world_.Milliseconds(300, 2000)
                                                             : world_.Milliseconds(20, 300);
  const bool aborted = world_.FaultyChance(0.03);
  world_.loop.After(prefill, scheduler_, [this, number = request.number, aborted] { EndPrefill(number, aborted); });
}

void WorldPrefill::EndPrefill(uint64_t number, bool aborted) {
  Running& running = running_.at(number);
  StepOrders orders;
  if (aborted) {
    orders.aborted.push_back({running.request.prefill_id(), running.request.transfer_id()});
    Step(orders);
    return FreeBlocks(number);
  }
  memory_->Fill(running.blocks, number, 0);
  running.finished = true;
  orders.finished.push_back({running.request.prefill_id(), running.request.transfer_id(), {running.blocks}});
  Step(orders);
  if (world_.options.canary == WorldCanary::kFreeWhenPrefilled && world_.random.Chance(0.01)) FreeBlocks(number);
}

void WorldPrefill::Step(const StepOrders& orders) {
  for (int64_t rank = 0; rank < world_.options.prefill_tp; ++rank) {
    Worker& worker = *workers_[static_cast<size_t>(rank)];
    world_.loop.After(kStep, worker.process, [this, rank, &worker, orders] {
      const MonotonicTime now = world_.loop.now();
      for (const FinishOrder& order : orders.finished) {
        worker.promised[order.request_id] = std::max(worker.promised[order.request_id], now + kWorldLease);
      }
      CarryOut(rank, worker.producer->RecordStep(orders, now), false);
    });
  }
}

void WorldPrefill::ScanLater(int64_t rank) {
  Worker& worker = *workers_[static_cast<size_t>(rank)];
  const absl::Duration wait = std::max(worker.producer->NextScan() - world_.loop.now(), absl::Milliseconds(1));
  world_.loop.After(std::min(wait, absl::Seconds(1)), worker.process, [this, rank, &worker] {
    const bool ahead = world_.options.canary == WorldCanary::kScanAhead;
    CarryOut(rank, worker.producer->Scan(world_.loop.now() + (ahead ? kClockAhead : absl::ZeroDuration())), true);
    ScanLater(rank);
  });
}

bool WorldPrefill::Receive(const std::string& address, const std::string& peer, const std::string& bytes) {
  for (int64_t rank = 0; rank < world_.options.prefill_tp; ++rank) {
    Worker& worker = *workers_[static_cast<size_t>(rank)];
    if (address != AddressOf(rank, worker.process.life) || worker.producer == nullptr) continue;
    world_.Carry(worker.process, [this, rank, &worker, peer, bytes] {
      ProducerActions actions = worker.producer->OnMessage(peer, bytes, world_.loop.now());
      if (IsRenewal(bytes)) NotePromises(worker, bytes, actions);
      CarryOut(rank, std::move(actions), false);
    });
    return true;
  }
  return false;
}

bool WorldPrefill::Listens(const std::string& address) const {
  for (int64_t rank = 0; rank < world_.options.prefill_tp; ++rank) {
    const Worker& worker = *workers_[static_cast<size_t>(rank)];
    if (address == AddressOf(rank, worker.process.life) && worker.producer != nullptr) return true;
  }
  return false;
}

void WorldPrefill::NotePromises(Worker& worker, const std::string& bytes, const ProducerActions& actions) {
  const Reply reply = *DecodeReply(actions.replies.at(0).bytes);
  if (reply.status != ReplyStatus::kFinish) return world_.Violated("a renewal is refused: " + *reply.err_message);
  ++world_.report.renewals;
  const std::vector<std::string>& unknown = reply.unknown_transfer_ids;
  const Renewal renewal = *DecodeRenewal(bytes);
  for (const std::string& transfer_id : renewal.transfer_ids) {
    if (std::find(unknown.begin(), unknown.end(), transfer_id) != unknown.end()) continue;
    MonotonicTime& promised = worker.promised["p" + transfer_id.substr(1)];
    promised = std::max(promised, world_.loop.now() + kWorldLease * 2 / 3);
  }
}

void WorldPrefill::CarryOut(int64_t rank, ProducerActions actions, bool scanned) {
  Worker& worker = *workers_[static_cast<size_t>(rank)];
  for (const PeerReply& reply : actions.replies) on_reply_(reply.peer, reply.bytes);
  for (HandoffWrite& write : actions.writes) {
    const WriteId id = write.id;
    const WorldEnd from = {memory_, &worker.process, worker.process.life};
    world_.writer.Post(from, find_decode_(*write.peer), std::move(write.pieces), write.deadline,
                       [this, rank, id, from, &worker](const WriteResult& result) {
                         if (!from.alive()) return;
                         world_.loop.After(absl::ZeroDuration(), worker.process, [this, rank, id, &worker, result] {
                           CarryOut(rank, worker.producer->OnWriteDone(id, result, world_.loop.now()), false);
                         });
                       });
  }
  const ProducerStats stats = worker.producer->TakeStats();
  world_.report.expired += stats.expired_requests;
  world_.report.late_pulls += stats.late_pulls;
  const bool all_expired = scanned && stats.expired_requests == static_cast<int64_t>(actions.finished_requests.size());
  for (const std::string& request_id : actions.finished_requests) {
    if (all_expired && worker.promised[request_id] > world_.loop.now()) {
      world_.Violated("the lease of " + request_id + " is shortened");
    }
    worker.promised.erase(request_id);
    world_.Note(NumberOf(request_id));
    world_.loop.After(kStep, scheduler_, [this, rank, request_id] { Finished(rank, request_id); });
  }
}

void WorldPrefill::Finished(int64_t rank, const std::string& request_id) {
  if (world_.options.canary == WorldCanary::kForgetFinished && world_.random.Chance(0.01)) return;
  const auto found = running_.find(NumberOf(request_id));
  if (found == running_.end()) {
    if (world_.options.canary == WorldCanary::kNone) world_.Violated(request_id + " finishes but does not run");
    return;
  }
  Running& running = found->second;
  if (!running.finished) world_.Violated(request_id + " finishes before its prefill");
  if (!running.finished_ranks.insert(rank).second) world_.Violated(request_id + " finishes twice");
  if (static_cast<int64_t>(running.finished_ranks.size()) == world_.options.prefill_tp) FreeBlocks(found->first);
}

void WorldPrefill::FreeBlocks(uint64_t number) {
  const auto found = running_.find(number);
  memory_->Free(found->second.blocks);
  running_.erase(found);
  if (!memory_->problem().empty()) world_.Violated("P: " + memory_->problem());
}

void WorldPrefill::Stall(int64_t rank, absl::Duration time) {
  workers_[static_cast<size_t>(rank)]->process.still_until = world_.loop.now() + time;
}

void WorldPrefill::StartAgain() {
  ++scheduler_.life;
  running_.clear();
  for (const auto& worker : workers_) {
    ++worker->process.life;
    worker->process.still_until = MonotonicTime::Min();
    worker->producer.reset();
  }
  world_.loop.After(world_.Milliseconds(1000, 10'000), scheduler_, [this] { StartWorkers(); });
}

void WorldPrefill::ExpectIdle() {
  if (memory_->num_free() != memory_->num_blocks()) {
    world_.Violated(fmt::format("P: {} blocks are still held", memory_->num_blocks() - memory_->num_free()));
  }
  for (const auto& worker : workers_) {
    const Producer& producer = *worker->producer;
    if (producer.num_transfers() + producer.num_pulls() + producer.num_writes() == 0) continue;
    world_.Violated(fmt::format("P: {} transfers, {} pulls, {} writes are left", producer.num_transfers(),
                                producer.num_pulls(), producer.num_writes()));
  }
}

}  // namespace tenure::pd
