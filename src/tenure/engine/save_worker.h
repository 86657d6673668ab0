// Saves what the scheduler ordered from the engine's blocks to the pool, in the background.
//
// One thread works the orders off one by one. Of each it asks which keys are there already (a probe: nothing is
// leased), waits until the engine has written its blocks, and puts the rest: full attention ascending, then windows,
// then states, a chain ending at its first refusal. Only an order all of whose chunks were kept advances what is saved
// of a request, so the next one retries. Whatever happens, each order's job is reported once, and its blocks are not
// read after that. Source: store_connector spec §6.2, §10.
//
// Where that section's order and a closed pool disagree (boundary puts before the chunks that they hang on), the pool
// wins: on a closed pool they take their place by group.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/engine/block_io.h"
#include "tenure/engine/log_pace.h"
#include "tenure/engine/save_list.h"
#include "tenure/engine/work_queue.h"
#include "tenure/engine/worker_context.h"

namespace tenure::engine {

class SaveWorker {
 public:
  static constexpr size_t kQueueMax = 65'536;  // Jobs; more are reported at once, unsaved.

  struct Options {
    SaveListOptions list;  // `closed` is set from the pool.
    bool events = false;
  };
  // `context` outlives this. The options were checked (store_worker.h).
  static absl::StatusOr<std::unique_ptr<SaveWorker>> Create(const WorkerContext& context, Options options);
  // As Stop().
  ~SaveWorker();
  SaveWorker(const SaveWorker&) = delete;
  SaveWorker& operator=(const SaveWorker&) = delete;

  // The plan's preempted, saves and finished, in this order. `fence` is waited for before any block is read. One thread
  // at a time.
  void Submit(StepPlan plan, const std::shared_ptr<Fence>& fence);
  // False when `deadline` came first.
  bool WaitUntilIdle(MonotonicTime deadline) { return queue_.WaitUntilIdle(context_.clock, deadline); }
  // Reports what nobody has begun as done, waits for what is under way. Idempotent; the thread of Submit.
  void Stop();

 private:
  // A request from its first order until it is preempted or finished. An order keeps its own alive, so one that is left
  // over from before a preemption can do no harm to the request's new state.
  struct Request {
    std::atomic<bool> preempted{false};
    // Of the saver's thread alone.
    std::vector<kv::BlockHash> hashes;
    Tokens saved;
    int64_t skipped_in_pressure = 0;   // The pressure_ that made this request wait; 0: none.
    std::optional<TokenWindow> retry;  // Tokens of the orders since `saved`, for events.
  };
  struct Job {
    SaveOrder order;
    std::shared_ptr<Request> request;
    std::shared_ptr<Fence> fence;
  };
  enum class JobEnd : uint8_t { kSaved, kFailed, kSkipped };
  // Some items of a job, and how each fared.
  enum class Fate : uint8_t {
    kMissing,
    kPresent,
    kKept,
    kWaiting,  // For its parent, which another rank puts.
    kNotKept,
  };
  struct Pass {
    std::vector<SaveItem> items;
    std::vector<Fate> fates;
    bool Failed() const;      // Something was not kept.
    bool ChunksKept() const;  // All of them, and none waits.
  };

  SaveWorker(const WorkerContext& context, Options options);
  void Run();
  JobEnd Process(Job& job);
  absl::Status TakeHashes(Job& job) const;
  // What the job saved is in its request; an error says why nothing more of it will be.
  absl::StatusOr<JobEnd> Save(Job& job, const TokenWindow& tokens);
  // Probes, then puts what is missing.
  absl::StatusOr<Pass> SaveItems(Job& job, std::vector<SaveItem> items, const TokenWindow& tokens);
  absl::Status Probe(Pass& pass);
  absl::Status PutMissing(Job& job, Pass& pass);
  // The next items to put together, from `next` on, which moves past them.
  std::vector<size_t> FillBatch(Pass& pass, size_t& next, connector::SaveChains& chains) const;
  absl::Status PutBatch(Job& job, Pass& pass, const std::vector<size_t>& batch, connector::SaveChains& chains);
  // What an answer means for the item, its chain and its request.
  Fate Learn(Job& job, const SaveItem& item, store::PutAnswer answer, connector::SaveChains& chains);
  void AddEvents(const Job& job, const Pass& pass, const TokenWindow& tokens);
  bool IsClosed() const { return options_.list.closed; }

  const WorkerContext& context_;
  const Options options_;
  const SaveList list_;
  LogPace log_pace_;
  std::unique_ptr<BlockIo> io_;
  // The pool has refused a put for want of room, and none was wholly kept since. Requests that met it wait for that.
  // Of the saver's thread.
  int64_t pressure_ = 0;  // 0: none; else a number of its own.
  int64_t last_pressure_ = 0;
  WorkQueue<Job> queue_;
  std::map<std::string, std::shared_ptr<Request>, std::less<>> requests_;  // Of the thread of Submit.
  std::thread thread_;
};

}  // namespace tenure::engine
