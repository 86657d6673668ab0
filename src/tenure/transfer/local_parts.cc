#include "tenure/transfer/local_parts.h"

#include <algorithm>
#include <climits>

#include "tenure/base/status.h"
#include "tenure/transfer/local_transport.h"

namespace tenure::transfer {

absl::Status LocalPart::WriteOnce(const LocalPeer& peer) {
  const size_t count = from_.size() - next_;
  TENURE_ASSIGN_OR_RETURN(const size_t bytes, peer.Write(&from_[next_], count, &to_[next_], count));
  Advance(bytes);
  return absl::OkStatus();
}

void LocalPart::Clear() {
  from_.clear();
  to_.clear();
  next_ = 0;
}

void LocalPart::Add(uint64_t from, uint64_t to, uint64_t size) {
  // Addresses of two processes; only the kernel follows them.
  from_.push_back({reinterpret_cast<void*>(from), size});
  to_.push_back({reinterpret_cast<void*>(to), size});
}

void LocalPart::Advance(size_t bytes) {
  while (next_ < from_.size() && bytes >= from_[next_].iov_len) bytes -= from_[next_++].iov_len;
  if (bytes == 0) return;
  for (iovec* part : {&from_[next_], &to_[next_]}) {
    part->iov_base = reinterpret_cast<void*>(reinterpret_cast<uint64_t>(part->iov_base) + bytes);
    part->iov_len -= bytes;
  }
}

bool LocalParts::Splits() const {
  if (writes_.size() > IOV_MAX) return true;
  uint64_t left = LocalTransport::kPartBytesMax;
  for (const PlacedWrite& write : writes_) {
    if (write.size > left) return true;
    left -= write.size;
  }
  return false;
}

bool LocalParts::Take(LocalPart& part) {
  part.Clear();
  const MutexLock lock(mutex_);
  if (Exhausted()) return false;
  uint64_t left = LocalTransport::kPartBytesMax;
  while (next_ < writes_.size() && left > 0 && part.from_.size() < IOV_MAX) {
    const PlacedWrite& write = writes_[next_];
    const uint64_t size = std::min(write.size - skip_, left);
    part.Add(write.from + skip_, write.to + skip_, size);
    left -= size;
    skip_ += size;
    if (skip_ < write.size) continue;
    ++next_;
    skip_ = 0;
  }
  return true;
}

void LocalParts::Fail(const absl::Status& status) {
  const MutexLock lock(mutex_);
  status_.Update(status);
}

absl::Status LocalParts::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

bool LocalParts::Join() {
  const MutexLock lock(mutex_);
  if (Exhausted()) return false;
  ++helpers_;
  return true;
}

void LocalParts::Leave() {
  const MutexLock lock(mutex_);
  // Under the lock: the waiting thread ends this object's life as soon as it has it.
  if (--helpers_ == 0) left_.SignalAll();
}

void LocalParts::WaitForHelpers() {
  const MutexLock lock(mutex_);
  while (helpers_ > 0) left_.Wait(mutex_);
}

}  // namespace tenure::transfer
