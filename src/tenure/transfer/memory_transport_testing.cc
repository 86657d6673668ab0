#include "tenure/transfer/memory_transport_testing.h"

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tenure/base/status.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {
namespace {

struct Order {
  pd::TransportAddress peer;
  std::vector<pd::WritePiece> pieces;
  MonotonicTime deadline;
  WriteDone done;  // Empty once it was called.
  MemoryFault fault;
  bool written = false;  // Nothing is left to happen to the peer's memory.
};

struct Answer {
  WriteDone done;
  WriteResult result;
};

}  // namespace

struct MemoryTransport::State {
  State(const MemoryTransport& owner_in, MemoryNetwork& network_in, const Clock& clock_in)
      : owner(owner_in), network(network_in), clock(clock_in) {}

  void Run();
  // Moves `order` on; whether it is over.
  bool Step(Order& order, std::vector<Answer>& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Write(const Order& order, bool half);

  const MemoryTransport& owner;
  MemoryNetwork& network;
  const Clock& clock;
  std::string name;
  RangeRegistry ranges;
  Mutex mutex;
  CondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  MemoryFault fault ABSL_GUARDED_BY(mutex) = MemoryFault::kNone;
  std::vector<Order> orders ABSL_GUARDED_BY(mutex);
  std::thread thread;
};

MemoryTransport::MemoryTransport(MemoryNetwork& network, const Clock& clock)
    : state_(std::make_unique<State>(*this, network, clock)) {
  {
    const MutexLock lock(network.mutex_);
    state_->name = fmt::format("{}", network.next_++);
    network.transports_[state_->name] = this;
  }
  state_->thread = std::thread([this] { state_->Run(); });
}

MemoryTransport::~MemoryTransport() {
  {
    const MutexLock lock(state_->network.mutex_);
    state_->network.transports_.erase(state_->name);
  }
  {
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.SignalAll();
  state_->thread.join();
}

absl::Status MemoryTransport::Register(const std::vector<MemoryRange>& ranges) { return state_->ranges.Add(ranges); }

pd::TransportAddress MemoryTransport::Address() const {
  return {std::string(kKind), state_->name, state_->ranges.Keys()};
}

absl::Status MemoryTransport::CanReach(const pd::TransportAddress& peer) {
  TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
  const MutexLock lock(state_->network.mutex_);
  if (state_->network.transports_.count(address) > 0) return absl::OkStatus();
  return Unavailable("the peer \"{}\" is gone", address);
}

void MemoryTransport::Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
                           WriteDone done) {
  {
    const MutexLock lock(state_->mutex);
    state_->orders.push_back({peer, std::move(pieces), deadline, std::move(done), state_->fault});
  }
  state_->changed.SignalAll();
}

void MemoryTransport::SetFault(MemoryFault fault) {
  const MutexLock lock(state_->mutex);
  state_->fault = fault;
}

void MemoryTransport::ReleaseHeld() {
  {
    const MutexLock lock(state_->mutex);
    for (Order& order : state_->orders) {
      if (order.fault == MemoryFault::kHold) order.fault = MemoryFault::kNone;
    }
  }
  state_->changed.SignalAll();
}

size_t MemoryTransport::open() const {
  const MutexLock lock(state_->mutex);
  size_t open = 0;
  for (const Order& order : state_->orders) open += order.done ? 1 : 0;
  return open;
}

void MemoryTransport::State::Run() {
  bool ending = false;
  while (!ending) {
    std::vector<Answer> answers;
    {
      const MutexLock lock(mutex);
      if (orders.empty() && !stopping) changed.Wait(mutex);
      std::vector<Order> left;
      for (Order& order : orders) {
        if (!Step(order, answers)) left.push_back(std::move(order));
      }
      orders = std::move(left);
      ending = stopping;
      for (Order& order : orders) {
        if (ending && order.done) answers.push_back({std::move(order.done), {Unavailable("the transport ends"), true}});
      }
      if (answers.empty() && !orders.empty() && !ending) changed.WaitFor(mutex, absl::Milliseconds(1));
    }
    for (Answer& answer : answers) answer.done(std::move(answer.result));
  }
}

bool MemoryTransport::State::Step(Order& order, std::vector<Answer>& answers) {
  const auto answer = [&](absl::Status status, bool settled) {
    if (order.done) answers.push_back({std::exchange(order.done, nullptr), {std::move(status), settled}});
  };
  if (order.fault == MemoryFault::kNone || order.fault == MemoryFault::kFail) {
    absl::Status status = Write(order, order.fault == MemoryFault::kFail);
    if (order.fault == MemoryFault::kFail && status.ok()) status = Unavailable("the test lets this write fail");
    answer(std::move(status), true);
    return true;
  }
  if (order.fault == MemoryFault::kSilence && !order.written) {
    (void)Write(order, false).ok();
    order.written = true;
  }
  const bool answered_late = order.fault == MemoryFault::kHold || order.fault == MemoryFault::kLose;
  if (answered_late && clock.Now() >= order.deadline) {
    answer(absl::DeadlineExceededError("the write was not done by its deadline"), false);
    return order.fault == MemoryFault::kLose;
  }
  return false;
}

absl::Status MemoryTransport::State::Write(const Order& order, bool half) {
  TENURE_ASSIGN_OR_RETURN(const MemoryMap theirs, MemoryMap::Create(order.peer));
  TENURE_ASSIGN_OR_RETURN(const std::vector<PlacedWrite> writes, PlaceWrites(ranges.Get()->map, theirs, order.pieces));
  TENURE_ASSIGN_OR_RETURN(const std::string address, owner.AddressFor(order.peer));
  // Held while the bytes are copied: a peer that ends waits for them.
  const MutexLock lock(network.mutex_);
  if (network.transports_.count(address) == 0) return Unavailable("the peer \"{}\" is gone", address);
  const size_t count = half ? writes.size() / 2 : writes.size();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(reinterpret_cast<void*>(writes[i].to), reinterpret_cast<const void*>(writes[i].from), writes[i].size);
  }
  return absl::OkStatus();
}

}  // namespace tenure::transfer
