// The ranges of this process's memory that Python may name by address. A wrong address is then a ValueError and not a
// crash: nothing outside a registered range is ever read or written. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "absl/status/status.h"
#include "tenure/base/mutex.h"

namespace tenure::python {

class MemoryRegistry {
 public:
  static constexpr size_t kRangesMax = 65'536;

  // Refuses address 0, size 0 or above 2^62, a range past the end of the address space, one that overlaps a registered
  // one, and more than kRangesMax.
  absl::Status Register(uint64_t address, uint64_t size);
  // InvalidArgument unless a range was registered that begins there.
  absl::Status Unregister(uint64_t address);
  // OK if [address, address + size) lies in one registered range; the error names `what`.
  absl::Status Check(std::string_view what, uint64_t address, uint64_t size) const;

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, uint64_t> size_of_ ABSL_GUARDED_BY(mutex_);  // By first address.
};

}  // namespace tenure::python
