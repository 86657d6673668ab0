#include "tenure/store/namespace_table.h"

#include <xxhash.h>

#include "tenure/base/status.h"
#include "tenure/store/pool.h"

namespace tenure::store {

NamespaceTable::NamespaceTable(int64_t namespaces_max)
    : namespaces_max_(namespaces_max),
      text_hashes_(std::make_unique<uint64_t[]>(static_cast<size_t>(namespaces_max))) {}

absl::StatusOr<kv::NamespaceId> NamespaceTable::Open(std::string_view prefix) {
  if (prefix.empty() || prefix.size() > Pool::kNamespaceNameMax) {
    return InvalidArgument("prefix has {} bytes; give 1 to {}", prefix.size(), Pool::kNamespaceNameMax);
  }
  if (const size_t nul = prefix.find('\0'); nul != std::string_view::npos) {
    return InvalidArgument("prefix holds a NUL at byte {}; give text without it", nul);
  }
  MutexLock lock(mutex_);
  if (const auto found = ids_.find(prefix); found != ids_.end()) return kv::NamespaceId(found->second);
  const uint32_t id = count_.load(std::memory_order_relaxed);
  if (id >= namespaces_max_) {
    return ResourceExhausted("prefix '{}' would be namespace {}, but the pool was made for {}; raise namespaces_max",
                             prefix, id + 1, namespaces_max_);
  }
  ids_.emplace(std::string(prefix), id);
  text_hashes_[id] = XXH3_64bits(prefix.data(), prefix.size());
  count_.store(id + 1, std::memory_order_release);
  return kv::NamespaceId(id);
}

}  // namespace tenure::store
