// The prefill engine of the simulated pair: a scheduler and a Producer a rank, in processes that stall and start again.
//
// It does what a shell and vLLM's scheduler do: carries out actions, and frees blocks when all workers have said so.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tenure/pd/producer.h"
#include "tenure/pd/world_memory_testing.h"
#include "tenure/pd/world_testing.h"

namespace tenure::pd {

class WorldPrefill {
 public:
  // (peer, bytes) from a worker to who sent to it.
  using OnReply = std::function<void(const std::string&, const std::string&)>;
  // The memory, process and life of D's worker that a pull came from.
  using FindDecode = std::function<WorldEnd(const Pull&)>;

  WorldPrefill(World& world, OnReply on_reply, FindDecode find_decode);

  void Arrive(const WorldRequest& request);
  // Lost when no worker of this life listens there; then false.
  bool Receive(const std::string& address, const std::string& peer, const std::string& bytes);
  bool Listens(const std::string& address) const;
  void Stall(int64_t rank, absl::Duration time);
  void StartAgain();
  void ExpectIdle();

 private:
  struct Worker {
    WorldProcess process;
    std::unique_ptr<Producer> producer;
    std::map<std::string, MonotonicTime> promised;  // By P's request id: no expiry before.
  };
  struct Running {
    WorldRequest request;
    WorldMemory::Blocks blocks;
    std::set<int64_t> finished_ranks;
    bool finished = false;
  };

  void StartWorkers();
  void Register(int64_t rank);
  void Schedule(const WorldRequest& request);
  void EndPrefill(uint64_t number, bool aborted);
  void Step(const StepOrders& orders);
  void ScanLater(int64_t rank);
  void CarryOut(int64_t rank, ProducerActions actions, bool scanned);
  void Finished(int64_t rank, const std::string& request_id);
  void FreeBlocks(uint64_t number);
  void NotePromises(Worker& worker, const std::string& bytes, const ProducerActions& actions);

  World& world_;
  OnReply on_reply_;
  FindDecode find_decode_;
  WorldProcess scheduler_;
  std::shared_ptr<WorldMemory> memory_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<uint64_t, Running> running_;
};

}  // namespace tenure::pd
