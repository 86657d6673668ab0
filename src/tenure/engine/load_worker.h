// Loads what the scheduler ordered from the pool into the engine's blocks.
//
// Threads share one queue; one request is one thread's. A request is read in batches, and its first failure ends it, as
// does its deadline: then every block of it that did not get its bytes is reported, with the request. A call of the
// pool that is late holds its own request only: those that wait behind it fail at their deadlines. Whatever happens,
// each order is reported once, and nothing is written to its blocks after that. Source: store_connector spec §5.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/engine/block_io.h"
#include "tenure/engine/log_pace.h"
#include "tenure/engine/work_queue.h"
#include "tenure/engine/worker_context.h"

namespace tenure::engine {

class LoadWorker {
 public:
  static constexpr int kThreadsMax = 64;
  static constexpr size_t kQueueMax = 65'536;  // Loads; more are failed at once.

  struct Options {
    int threads = 1;
    // From the order to the last byte; a call of the pool under way may go on to its own deadline.
    absl::Duration deadline = absl::Seconds(5);
  };
  // InvalidArgument names the option. `context` outlives this.
  static absl::StatusOr<std::unique_ptr<LoadWorker>> Create(const WorkerContext& context, const Options& options);
  // As Stop().
  ~LoadWorker();
  LoadWorker(const LoadWorker&) = delete;
  LoadWorker& operator=(const LoadWorker&) = delete;

  // Any thread. Nothing is written to the blocks before `fence` has passed.
  void Submit(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence);
  // The same, and waits until each of them has been reported.
  void LoadNow(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence);
  // Reports the loads that nobody has begun by their deadlines. Any thread, now and then.
  void FailLate();
  // False when `deadline` came first.
  bool WaitUntilIdle(MonotonicTime deadline) { return queue_.WaitUntilIdle(context_.clock, deadline); }
  // Fails what nobody has begun, waits for what is under way. Idempotent; one thread.
  void Stop();

 private:
  // Counts down as the orders of a LoadNow are reported.
  struct Latch {
    Mutex mutex;
    CondVar done;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
  };
  struct Load {
    LoadOrder order;
    MonotonicTime deadline;
    std::shared_ptr<Fence> fence;
    std::shared_ptr<Latch> latch;  // Null: nobody waits.
  };
  // What of an order could not be loaded, so far.
  struct Outcome {
    std::vector<BlockId> blocks;
    std::array<int64_t, kLoadFailures> failed_keys{};
    bool ok() const { return blocks.empty() && failed_keys == std::array<int64_t, kLoadFailures>{}; }
    void Fail(LoadFailure cause, const BlockObject& object) {
      ++failed_keys[static_cast<size_t>(cause)];
      blocks.push_back(object.block);
    }
  };

  LoadWorker(const WorkerContext& context, const Options& options)
      : context_(context), options_(options), log_pace_(context.clock), queue_(kQueueMax) {}
  // The orders' deadline.
  MonotonicTime SubmitAll(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence,
                          const std::shared_ptr<Latch>& latch);
  void Run(BlockIo& io);
  void Process(BlockIo& io, Load load);
  // The objects that the order reads, in this rank's order; nothing when one of its chunks cannot be.
  std::optional<std::vector<BlockObject>> ObjectsOf(const LoadOrder& order) const;
  Outcome Read(BlockIo& io, const std::vector<BlockObject>& objects, MonotonicTime deadline);
  bool ReadBatch(BlockIo& io, std::span<const BlockObject> batch, Outcome& outcome);
  void RemoveWrong(std::span<const BlockObject> batch, std::span<const store::KeyAnswer> answers);
  void FailUnread(Load load, LoadFailure cause = LoadFailure::kNotTried);
  // Every chunk of the order failed by `cause`, with the blocks that this engine has.
  Outcome AllFailed(const LoadOrder& order, LoadFailure cause) const;
  void Report(Load load, Outcome outcome);

  const WorkerContext& context_;
  const Options options_;
  LogPace log_pace_;
  WorkQueue<Load> queue_;
  std::vector<std::unique_ptr<BlockIo>> lanes_;  // One a thread.
  std::vector<std::thread> threads_;
};

}  // namespace tenure::engine
