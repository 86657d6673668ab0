// Key prefixes and the small ids that stand for them. An id is never given back: keys of it may be anywhere.
//
// Thread-safe; reading what is there takes no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/base/mutex.h"
#include "tenure/kv/object_key.h"

namespace tenure::store {

class NamespaceTable {
 public:
  explicit NamespaceTable(int64_t namespaces_max);

  // The same id for the same text. InvalidArgument for a text that is empty, too long or holds a NUL, ResourceExhausted
  // when the table is full.
  absl::StatusOr<kv::NamespaceId> Open(std::string_view prefix);
  bool Contains(kv::NamespaceId id) const { return id.value() < count_.load(std::memory_order_acquire); }
  int64_t size() const { return count_.load(std::memory_order_acquire); }
  // A hash of the text, the same in every process. Precondition: Contains(id).
  uint64_t TextHash(kv::NamespaceId id) const { return text_hashes_[id.value()]; }

 private:
  const int64_t namespaces_max_;
  std::unique_ptr<uint64_t[]> text_hashes_;  // Written before count_ says so.
  std::atomic<uint32_t> count_{0};
  Mutex mutex_;
  std::map<std::string, uint32_t, std::less<>> ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tenure::store
