// The ranges that a transport has registered, growing as a whole: readers keep the state they have got. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/memory_map.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

struct RegisteredRanges {
  std::vector<MemoryRange> ranges;
  MemoryMap map;
};

class RangeRegistry {
 public:
  RangeRegistry() : state_(std::make_shared<const RegisteredRanges>()) {}

  // All of them or, with InvalidArgument, none.
  absl::Status Add(const std::vector<MemoryRange>& ranges);
  std::shared_ptr<const RegisteredRanges> Get() const;
  // The ranges as an address names them, for transports that need no keys.
  std::vector<pd::MemoryKey> Keys() const;

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const RegisteredRanges> state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::transfer
