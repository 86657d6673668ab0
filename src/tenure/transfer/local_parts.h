// The writes of one post to a process of this host, handed out in parts to the threads that write it.
#pragma once

#include <sys/uio.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {

// What one process_vm_writev takes: both sides have the same lengths. One thread at a time.
class LocalPart {
 public:
  bool done() const { return next_ == from_.size(); }
  // Writes to `peer` what one call writes. The errors of LocalPeer::Write.
  absl::Status WriteOnce(const LocalPeer& peer);

 private:
  friend class LocalParts;
  void Clear();
  void Add(uint64_t from, uint64_t to, uint64_t size);
  void Advance(size_t bytes);

  std::vector<iovec> from_;
  std::vector<iovec> to_;
  size_t next_ = 0;
};

// From any thread. One thread makes it and answers the post; it ends this object after WaitForHelpers.
class LocalParts {
 public:
  LocalParts(LocalPeer peer, std::vector<PlacedWrite> writes, MonotonicTime deadline)
      : peer_(std::move(peer)), deadline_(deadline), writes_(std::move(writes)) {}

  const LocalPeer& peer() const { return peer_; }
  MonotonicTime deadline() const { return deadline_; }

  // Whether there is more than one part to take.
  bool Splits() const;
  // The next part that no thread has; false when there is none, or one has failed.
  bool Take(LocalPart& part);
  // No part is handed out any more. The first failure is what status() says.
  void Fail(const absl::Status& status);
  absl::Status status() const;

  // One more thread takes parts, until it says Leave. False: there are none to take.
  bool Join();
  void Leave();
  // Returns when nobody else can write for this post. The caller has seen to it that nobody joins any more.
  void WaitForHelpers();

 private:
  bool Exhausted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return next_ == writes_.size() || !status_.ok(); }

  const LocalPeer peer_;
  const MonotonicTime deadline_;
  const std::vector<PlacedWrite> writes_;
  mutable Mutex mutex_;
  CondVar left_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t skip_ ABSL_GUARDED_BY(mutex_) = 0;  // Bytes of writes_[next_] that are handed out.
  int helpers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::transfer
