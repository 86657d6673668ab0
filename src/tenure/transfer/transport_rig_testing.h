// What tests and benchmarks of transports share: results that can be waited for, and memory with a known content.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tenure/base/mutex.h"
#include "tenure/base/random.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

// The result of one post; `Done()` is what is posted. CHECKs that it comes once.
class PostedWrite {
 public:
  PostedWrite() : slot_(std::make_shared<Slot>()) {}

  WriteDone Done() const {
    return [slot = slot_](WriteResult result) { slot->Set(std::move(result)); };
  }
  bool done() const;
  // Waits for it; CHECKs that it comes within a minute.
  WriteResult Wait() const;

 private:
  struct Slot {
    void Set(WriteResult value);

    Mutex mutex;
    CondVar changed;
    std::optional<WriteResult> result ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Slot> slot_;
};

WriteResult WriteAndWait(Transport& transport, const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces,
                         MonotonicTime deadline);

// Bytes with an address that a transport has registered.
class TestMemory {
 public:
  // Zeros.
  explicit TestMemory(size_t size) : bytes_(size) {}
  // Random bytes.
  TestMemory(size_t size, uint64_t seed);

  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes_.data()); }
  std::vector<MemoryRange> range() const { return {{address(), bytes_.size()}}; }
  // A copy of what a transport has written. The thread sanitizer does not look: what orders a write by another thread
  // before its answer are messages that it cannot follow.
  std::vector<unsigned char> Arrived() const;
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  uint64_t ChecksumOf(size_t offset, size_t size) const;

 private:
  std::vector<unsigned char> bytes_;
};

}  // namespace tenure::transfer
