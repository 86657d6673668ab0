// The decode engine of the simulated pair: a scheduler that renews and a Consumer a rank, in processes that stall and
// start again.
//
// It does what a shell and vLLM's scheduler do: carries out actions, and takes blocks back when all workers have said
// so. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenure/pd/consumer.h"
#include "tenure/pd/renewal_schedule.h"
#include "tenure/pd/renewer.h"
#include "tenure/pd/world_memory_testing.h"
#include "tenure/pd/world_testing.h"

namespace tenure::pd {

class WorldDecode {
 public:
  // (address, peer, bytes): to a prefill worker; false when nobody listens there.
  using Send = std::function<bool(const std::string&, const std::string&, const std::string&)>;

  // Whether a prefill worker of this life listens at an address.
  using Listens = std::function<bool(const std::string&)>;

  WorldDecode(World& world, Send send, Listens listens);

  void Arrive(const WorldRequest& request);
  void Receive(const std::string& peer, const std::string& bytes);
  // The worker that a pull came from, in the life that it had.
  WorldEnd EndOf(const Pull& pull);
  // A rank below 0 is the scheduler.
  void Stall(int64_t rank, absl::Duration time);
  void StartAgain();
  void ExpectIdle();

 private:
  struct Worker {
    WorldProcess process;
    std::unique_ptr<Consumer> consumer;
  };
  struct Running {
    WorldRequest request;
    MonotonicTime deadline;
    WorldMemory::Blocks blocks;
    std::map<int64_t, std::string> settled;  // By rank: the error, empty for received.
    bool pulled = false;
    bool aborted = false;
  };

  void StartWorkers();
  WorldProcess& ProcessOf(int64_t rank);
  void TickLater(int64_t rank);
  void TryStart(uint64_t number);
  void SendPull(const Running& running, std::vector<WorldMemory::Blocks> blocks);
  void SendOrders();
  void CarryOut(int64_t rank, const ConsumerActions& actions);
  void CarryOut(const RenewerActions& actions);
  void SendMessages(int64_t rank, const std::vector<ChannelMessage>& sends);
  void Query(int64_t rank, const std::string& address);
  void Failing(Running& running);
  void Settled(int64_t rank, Running& running, const std::string& error);
  void CheckInTime(const Running& running);
  void CheckContent(const Running& running);
  void CheckMemory();
  void Free(Running& running);
  void Forget(uint64_t number, int64_t& counter);

  World& world_;
  Send send_;
  Listens listens_;
  WorldProcess scheduler_;
  std::vector<std::shared_ptr<WorldMemory>> memories_;  // By life; writes to the earlier ones may run.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<RenewalSchedule> schedule_;
  std::unique_ptr<Renewer> renewer_;
  std::map<uint64_t, Running> running_;
  std::vector<PullOrder> orders_;  // Of this step.
};

}  // namespace tenure::pd
