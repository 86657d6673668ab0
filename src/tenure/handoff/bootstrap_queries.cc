#include "tenure/handoff/bootstrap_queries.h"

#include <utility>

#include "tenure/base/status.h"

namespace tenure::handoff {

BootstrapQueries::BootstrapQueries(const BootstrapClientOptions& options, size_t threads, OnAnswer on_answer)
    : options_(options), on_answer_(std::move(on_answer)), asking_(threads, nullptr) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

BootstrapQueries::~BootstrapQueries() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (BootstrapClient* client : asking_) {
      if (client != nullptr) client->Cancel();
    }
    ready_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void BootstrapQueries::Ask(const std::string& url) {
  {
    MutexLock lock(mutex_);
    if (waiting_.size() < kWaitingMax) {
      waiting_.push_back(url);
      ready_.SignalOne();
      return;
    }
  }
  on_answer_(url, ResourceExhausted("{} bootstrap servers wait to be asked, the maximum; retry later", kWaitingMax));
}

void BootstrapQueries::Run(size_t thread) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      ready_.Wait(mutex_);
      continue;
    }
    const std::string url = std::move(waiting_.front());
    waiting_.pop_front();
    mutex_.Unlock();
    on_answer_(url, Query(url, thread));
    mutex_.Lock();
  }
}

absl::StatusOr<RegisteredEngines> BootstrapQueries::Query(const std::string& url, size_t thread) {
  TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<BootstrapClient> client, BootstrapClient::Create(url, options_));
  {
    MutexLock lock(mutex_);
    if (stopping_) return Unavailable("bootstrap server {}: not asked any more", url);
    asking_[thread] = client.get();
  }
  absl::StatusOr<RegisteredEngines> engines = client->Query();
  MutexLock lock(mutex_);
  asking_[thread] = nullptr;
  return engines;
}

}  // namespace tenure::handoff
