// One lookup a request, on threads of our own, so that a slow pool costs the engine's scheduler nothing.
//
// The shell around LookupAnswers: a mutex, the threads that search, renew leases and end them, and one log line for
// each burst of failures. Each thread has a Lookup of its own. Nothing is called with the mutex held. A call of the
// pool may hang: what is asked meanwhile is a miss at its deadline. Design §6.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/connector/key_batch.h"
#include "tenure/connector/lookup.h"
#include "tenure/engine/log_pace.h"
#include "tenure/engine/lookup_answers.h"
#include "tenure/engine/recording_pool.h"
#include "tenure/kv/cache_config.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

struct BackgroundLookupOptions {
  connector::LookupOptions lookup;
  LookupAnswers::Options answers;
  int threads = 1;  // 0 to kThreadsMax; with 0 nothing happens but in RunPending (tests, simulations).
  // Await searches in the calling thread: for pools that answer from memory at once. Threads only renew and release.
  bool search_inline = false;
  // The longest that Await waits for a thread, and only while recent searches took no longer. 0: never. vLLM's engine
  // sleeps as long after a step in which no model ran, and an answer that comes later waits for a step of the others.
  absl::Duration grace = absl::Milliseconds(1);
  absl::Duration step_grace = absl::Milliseconds(2);  // For all Awaits of one step of the engine together.
};

// Any thread may call anything but Stop, which is the owner's. On a ManualClock nobody waits for its time: use no
// grace, and RunPending for renewals.
class BackgroundLookups {
 public:
  static constexpr int kThreadsMax = 16;

  // InvalidArgument names the option, or what connector::Lookup::Create refuses. All references outlive it.
  static absl::StatusOr<std::unique_ptr<BackgroundLookups>> Create(const kv::CacheConfig& config, store::Pool& pool,
                                                                   connector::GroupNamespaces namespaces,
                                                                   const BackgroundLookupOptions& options,
                                                                   const Clock& clock);
  ~BackgroundLookups() { Stop(); }
  BackgroundLookups(const BackgroundLookups&) = delete;
  BackgroundLookups& operator=(const BackgroundLookups&) = delete;

  // Never waits. Null: not yet; ask again. A miss is a hit of length 0, and after Stop everything is one.
  LookupAnswers::Answer Ask(const std::string& request, const LookupAnswers::Query& query);
  // May make the next Ask of the request have an answer: searches in this thread, or waits a little.
  void Await(const std::string& request);
  // The engine's step is over.
  void EndStep();
  void Forget(const std::string& request);
  void ForgetAll();
  // Does one thing that a thread would do; false when there is none.
  bool RunPending();

  // From now on every answer is a miss. Waits up to `patience` for the calls of the pool under way and ends every
  // lease. False: a call still runs. Then call it again, or leave this object and all that it refers to to its thread
  // for good: the destructor waits for as long as it takes.
  bool Stop(absl::Duration patience = absl::InfiniteDuration());

  LookupTotals totals();
  std::vector<LookupRecord> TakeOperations() { return pool_.TakeRecords(); }

 private:
  // What one thread searches with.
  struct Searcher {
    connector::Lookup lookup;
    connector::KeyBatch keys;
  };

  BackgroundLookups(const kv::CacheConfig& config, store::Pool& pool, const BackgroundLookupOptions& options,
                    const Clock& clock);
  absl::Status MakeSearchers(const connector::GroupNamespaces& namespaces);

  void Serve(Searcher& searcher);
  bool RunOne(Searcher& searcher, bool may_search) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RunSearch(Searcher& searcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RunRenewal(Searcher& searcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends what was dropped, without the lock.
  bool EndDropped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Leases of a caller's thread end on ours, since a pool may be asked; its hashes end with `dropped`, in its thread.
  void LeaveLeases(LookupAnswers::Dropped& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const kv::CacheConfig& config_;
  RecordingPool pool_;
  const BackgroundLookupOptions options_;
  const Clock& clock_;
  LogPace late_pace_;
  LogPace error_pace_;
  LogPace renewal_pace_;
  std::vector<std::unique_ptr<Searcher>> searchers_;  // One a thread, then the caller's.

  Mutex mutex_;
  CondVar work_;      // For the threads: something to do, or the end.
  CondVar answered_;  // For Await and Stop.
  LookupAnswers answers_ ABSL_GUARDED_BY(mutex_);
  LookupAnswers::Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int serving_ ABSL_GUARDED_BY(mutex_) = 0;           // Threads that have not ended.
  int searching_ ABSL_GUARDED_BY(mutex_) = 0;         // Searches under way, a caller's too.
  bool patient_ ABSL_GUARDED_BY(mutex_) = true;       // Recent searches took no longer than the grace.
  absl::Duration step_left_ ABSL_GUARDED_BY(mutex_);  // Of this step's grace.
  std::vector<std::thread> threads_;
};

}  // namespace tenure::engine
