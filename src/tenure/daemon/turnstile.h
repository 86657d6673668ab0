// A lock that is taken in the order of arrival.
//
// Callers that wait for one daemon with a deadline each need that order: whoever is ahead came earlier and so has the
// earlier deadline, hence nobody waits here beyond its own. std::mutex lets a late comer overtake.
#pragma once

#include <cstdint>

#include "tenure/base/mutex.h"

namespace tenure::daemon {

class ABSL_LOCKABLE Turnstile {
 public:
  void Enter() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(mutex_);
    const uint64_t turn = next_++;
    while (serving_ != turn) turned_.Wait(mutex_);
  }
  void Leave() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(mutex_);
    ++serving_;
    if (serving_ != next_) turned_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar turned_;
  uint64_t next_ = 0;
  uint64_t serving_ = 0;
};

class ABSL_SCOPED_LOCKABLE TurnstileLock {
 public:
  explicit TurnstileLock(Turnstile& turnstile) ABSL_EXCLUSIVE_LOCK_FUNCTION(turnstile) : turnstile_(turnstile) {
    turnstile_.Enter();
  }
  ~TurnstileLock() ABSL_UNLOCK_FUNCTION() { turnstile_.Leave(); }
  TurnstileLock(const TurnstileLock&) = delete;
  TurnstileLock& operator=(const TurnstileLock&) = delete;

 private:
  Turnstile& turnstile_;
};

}  // namespace tenure::daemon
