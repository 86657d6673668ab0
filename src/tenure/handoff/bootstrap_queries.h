// Asks bootstrap servers on threads of its own, several at once, so that a dead one does not keep the others waiting.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/handoff/bootstrap_client.h"

namespace tenure::handoff {

class BootstrapQueries {
 public:
  // Called on one of the threads, or in Ask; must not block.
  using OnAnswer = std::function<void(const std::string& url, absl::StatusOr<RegisteredEngines> engines)>;

  static constexpr size_t kWaitingMax = 4096;

  BootstrapQueries(const BootstrapClientOptions& options, size_t threads, OnAnswer on_answer);
  // What waits is not answered; what is under way ends, at the latest with the look-up of a name.
  ~BootstrapQueries();
  BootstrapQueries(const BootstrapQueries&) = delete;
  BootstrapQueries& operator=(const BootstrapQueries&) = delete;

  // Answered once, also with the errors of BootstrapClient; ResourceExhausted at kWaitingMax.
  void Ask(const std::string& url);

 private:
  void Run(size_t thread);
  absl::StatusOr<RegisteredEngines> Query(const std::string& url, size_t thread);

  const BootstrapClientOptions options_;
  const OnAnswer on_answer_;
  Mutex mutex_;
  CondVar ready_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<BootstrapClient*> asking_ ABSL_GUARDED_BY(mutex_);  // Of each thread; null: none.
  std::vector<std::thread> threads_;
};

}  // namespace tenure::handoff
